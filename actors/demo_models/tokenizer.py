"""The demo pair's tokenizer: one token per word of the corpus, bytes for any other text.

Written as the JSON that the `tokenizers` library reads: byte-level BPE without merges, where `ignore_merges` takes a
whole word when it is in the vocabulary (as Llama 3 does) and anything else falls apart into bytes. No library needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from actors.demo_models.corpus import LEXICON

SPECIAL = ("<s>", "</s>", "<pad>")
BOS_ID, EOS_ID, PAD_ID = range(3)
SPACE = "Ġ"
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def byte_alphabet() -> tuple[str, ...]:
    """The printable stand-in of each byte in byte-level BPE (the GPT-2 table): itself, or a letter from 256 up."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return tuple(chr(byte) if byte in printable else chr(next(others)) for byte in range(256))


def vocabulary() -> dict[str, int]:
    """Token to id: the words of the corpus (each with its leading space) directly after the special tokens."""
    tokens = (*SPECIAL, *(SPACE + word for word in LEXICON), *byte_alphabet())
    return {token: index for index, token in enumerate(tokens)}


WORD_IDS = {word: len(SPECIAL) + index for index, word in enumerate(LEXICON)}


def encode_words(words: Iterable[str]) -> list[int]:
    """Ids of words of the corpus; KeyError for any other word."""
    return [WORD_IDS[word] for word in words]


def decode_ids(ids: Sequence[int]) -> list[str]:
    """The words of ids that stand for words; IndexError for bytes and special tokens."""
    if any(not 0 <= index - len(SPECIAL) < len(LEXICON) for index in ids):
        raise IndexError("only ids of whole words can be decoded here")
    return [LEXICON[index - len(SPECIAL)] for index in ids]


def write_tokenizer(folder: Path, *, model_max_length: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into an existing folder."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
            for index, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocabulary(),
            "merges": [],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS_ID],
        "eos_token": SPECIAL[EOS_ID],
        "pad_token": SPECIAL[PAD_ID],
        "clean_up_tokenization_spaces": False,
        "model_max_length": model_max_length,
        "chat_template": CHAT_TEMPLATE,
    }
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
