"""Whether two rows ran the same: what is left out of one is neither equal nor different."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.explain.reading import Reading, read
from results.explain.sameness import same, same_numbers
from results.external_row import ExternalRow

NUMBERS = st.tuples(*[st.none() | st.integers(1, 8)] * 3)
FLAGS = st.dictionaries(st.sampled_from(["page_size", "attention_backend"]), st.sampled_from([None, 1, "fa3"]))


def row(numbers: tuple[int | None, ...] = (5, 4, 8), **flags: object) -> Reading:
    steps, topk, tokens = numbers
    return read(ExternalRow(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens, flags=flags))


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ((5, 4, None), (5, 4, 8), "undecided"),
        ((5, 4, None), (5, 2, 8), "no"),
        ((4, 4, None), (5, 4, 8), "no"),
        ((5, None, 8), (5, 4, 8), "undecided"),
        ((5, None, 8), (5, 4, 16), "undecided"),
        ((5, None, 8), (5, None, 8), "yes"),
        ((5, None, 8), (5, None, 16), "undecided"),
        ((5, 1, 8), (5, 1, 16), "yes"),
        ((None, 1, 8), (5, 1, 6), "undecided"),
        ((None, 4, 8), (5, 4, 16), "no"),
        ((None, None, None), (5, 4, 8), "undecided"),
        ((None, None, None), (None, None, None), "yes"),
    ],
)
def test_the_three_numbers(first: tuple[int | None, ...], second: tuple[int | None, ...], answer: str) -> None:
    assert same(row(first), row(second), "config") == answer


def test_flags() -> None:
    plain, fa3, triton = row(), row(attention_backend="fa3"), row(attention_backend="triton")
    assert same(plain, fa3, "config") == "undecided"
    assert same(fa3, triton, "config") == "no"
    assert same(row((None, None, None), page_size=1), row((None, None, None), page_size=64), "config") == "no"
    assert same(row((5, 4, None), page_size=1), row(page_size=64), "config") == "no"
    assert same(row((4, 4, 8)), fa3, "config") == "no"
    assert same(row(attention_backend=None), fa3, "config") == "no"
    assert same(plain, row(model_path="elsewhere"), "config") == "yes"


@given(NUMBERS, NUMBERS, FLAGS, FLAGS)
def test_the_order_does_not_count_and_a_row_is_equal_to_itself(one, other, flags, other_flags) -> None:
    first, second = row(one, **flags), row(other, **other_flags)
    assert same(first, first, "config") == "yes"
    assert same(first, second, "config") == same(second, first, "config")


@given(NUMBERS, NUMBERS)
def test_what_is_known_to_differ_still_does_when_more_is_named(one, other) -> None:
    """What is said of two rows stays true whatever the number is that the first leaves out."""
    before = same_numbers(row(one), row(other))
    if before != "no" or row(one).triple is not None:
        return
    filled = tuple(value if value is not None else 3 for value in one)
    assert same_numbers(row(filled), row(other)) == "no"
