"""The corpus: reproducible, split cleanly, right by its own rules, and never a loop."""

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.demo_models.corpus import KINDS, LEXICON, document, documents, prompt_length, prompts


def test_same_seed_same_text():
    one, two, other = ([d.text for d in islice(documents(seed, length=90, held_out=False), 40)] for seed in (3, 3, 4))
    assert one == two
    assert one != other


def test_known_lines():
    by_kind = {d.kind: d.text for d in islice(documents(0, length=40, held_out=False), len(KINDS))}
    assert set(by_kind) == set(KINDS)
    for kind, text in by_kind.items():
        assert text.startswith(kind + " ")


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(tuple(KINDS)))
def test_continuations_do_not_loop(seed: int, kind: str):
    drawn = document(random.Random(seed), length=192, kind=kind)
    words = drawn.words[prompt_length(drawn) :][:128]
    assert len(words) == 128
    bigrams, four_grams = (len({words[i : i + n] for i in range(128 - n + 1)}) / (128 - n + 1) for n in (2, 4))
    assert bigrams > 0.4
    assert four_grams > 0.7
    for period in range(1, 64):
        assert words[-2 * period : -period] != words[-period:]


@given(seed=st.integers(0, 10_000))
def test_nests_are_mirrors(seed: int):
    words = document(random.Random(seed), length=150, kind="nest").words[1:]
    end = words.index(";")
    opened = [words[at : at + 2] for at in range(0, end // 2, 2)]
    closed = [words[at : at + 2] for at in range(end // 2, end, 2)]
    assert closed == [({"(": ")", "[": "]", "{": "}"}[mark], value) for mark, value in reversed(opened)]


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(tuple(KINDS)))
def test_a_header_settles_the_rest(seed: int, kind: str):
    """Two documents with the same header never differ later: a model can know what follows."""
    first = document(random.Random(seed), length=160, kind=kind)
    for other_seed in range(seed + 1, seed + 30):
        other = document(random.Random(other_seed), length=160, kind=kind)
        if other.words[: first.header] == first.words[: first.header]:
            assert other.words == first.words


def test_held_out_documents_never_train():
    held = list(islice(documents(0, length=64, held_out=True), 60))
    trained = {d.words[: d.header] for d in islice(documents(0, length=64, held_out=False), 3000)}
    assert all(d.held_out for d in held)
    assert not trained & {d.words[: d.header] for d in held}


def test_prompts_are_distinct_whole_lines_that_hold_the_header():
    texts = prompts(40)
    assert len(set(texts)) == 40
    assert {text.split()[0] for text in texts} == set(KINDS)
    for text in texts:
        assert text[-1] in ";."
        assert 24 <= len(text.split()) <= 48
        assert set(text.split()) <= set(LEXICON)
    assert prompts(7) == texts[:7]


def test_an_unknown_kind_is_a_mistake():
    with pytest.raises(KeyError):
        document(random.Random(0), length=10, kind="poem")
