"""Degenerate text: loops and repetition, against text that merely repeats a little."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import VARIED_IDS

from results.degenerate import is_degenerate, text_statistics, trailing_loop


def counting(start: int, stride: int, tokens: int) -> tuple[int, ...]:
    """`up 5 8 11 14 ...` in digits: few tokens, no loop."""
    text: list[int] = []
    value = start
    while len(text) < tokens:
        text += [int(digit) for digit in str(value)] + [10]
        value += stride
    return tuple(text[:tokens])


@given(st.integers(1, 40), st.integers(0, 60), st.integers(3, 6))
def test_a_planted_loop_is_found_with_its_length(period: int, prefix: int, rounds: int) -> None:
    loop = tuple(range(9000, 9000 + period))
    ids = VARIED_IDS[:prefix] + loop * rounds
    found_period, length = trailing_loop(ids)
    assert found_period == period
    assert length == period * rounds


def test_text_without_a_loop_has_none() -> None:
    assert trailing_loop(VARIED_IDS[:300]) == (0, 0)
    assert trailing_loop(()) == (0, 0)


@pytest.mark.parametrize(
    ("ids", "degenerate"),
    [
        (tuple([7, 9] * 250), True),
        ((5,) * 64, True),
        (VARIED_IDS[:60] + (3,) * 70, True),  # falls into a loop half way
        (VARIED_IDS[:100] + (3,) * 40, False),  # ends in a few repeats
        (VARIED_IDS[:200], False),
        (counting(5, 3, 256), False),
        (counting(100, 7, 1000), False),
        ((5,) * 20, False),  # too short to judge
    ],
)
def test_which_outputs_are_degenerate(ids: tuple[int, ...], degenerate: bool) -> None:
    assert is_degenerate(ids) is degenerate


def test_statistics_of_two_tokens_in_five_hundred() -> None:
    statistics = text_statistics([tuple([7, 9] * 250)])
    assert (statistics.distinct_tokens, statistics.judged, statistics.degenerate) == (2, 1, 1)
    assert statistics.bigram_share == pytest.approx(4 / 499)
    assert text_statistics([]).bigram_share is None
    assert text_statistics([(1,)]).bigram_share is None
