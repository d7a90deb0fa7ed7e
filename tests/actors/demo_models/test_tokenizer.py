"""The tokenizer: our own encoding and that of the library that serves agree, and any text survives."""

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.demo_models.corpus import LEXICON, documents
from actors.demo_models.tokenizer import SPECIAL, byte_alphabet, decode_ids, encode_words, vocabulary, write_tokenizer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory):
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, model_max_length=64)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_every_id_is_used_once():
    table = vocabulary()
    assert sorted(table.values()) == list(range(len(table)))
    assert len(table) == len(SPECIAL) + len(LEXICON) + 256


def test_byte_alphabet_is_the_public_table():
    alphabet = byte_alphabet()
    assert (alphabet[ord(" ")], alphabet[ord("A")], alphabet[0], alphabet[ord("\n")]) == ("Ġ", "A", "Ā", "Ċ")
    assert len(set(alphabet)) == 256


def test_words_round_trip():
    assert decode_ids(encode_words(LEXICON)) == list(LEXICON)
    with pytest.raises(KeyError):
        encode_words(["unheard"])
    with pytest.raises(IndexError):
        decode_ids([0])


def test_agrees_with_the_library(served):
    for drawn in islice(documents(2, length=100, held_out=False), 30):
        ids = encode_words(drawn.words)
        assert served.encode(drawn.text).ids == ids
        assert served.decode(ids).strip() == drawn.text


@given(text=st.text(max_size=60))
def test_any_text_survives(served, text: str):
    decoded = served.decode(served.encode(text).ids, skip_special_tokens=False)
    assert decoded.removeprefix(" ") == text.removeprefix(" ")


def test_written_config_names_its_special_tokens(tmp_path):
    write_tokenizer(tmp_path, model_max_length=64)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (config["bos_token"], config["eos_token"], config["model_max_length"]) == ("<s>", "</s>", 64)
