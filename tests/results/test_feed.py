"""Matching what a draft is fed against the target's taps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.feed import FeedCapture, FeedReport, describe_feed, match_feed

TAPS, TOKENS, HIDDEN = 8, 12, 16
STREAMS = np.cumsum(np.random.default_rng(0).normal(size=(TAPS, TOKENS, HIDDEN)), axis=0).astype(np.float32)
IDS = np.arange(TOKENS)


def capture(fed: np.ndarray, rank: int = 0) -> FeedCapture:
    return FeedCapture(rank=rank, fed=fed.astype(np.float32), taps=STREAMS, input_ids=IDS)


def feed(layout: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([STREAMS[tap] for tap in layout], axis=1)


REFERENCE = capture(feed((2, 4, 5)))


def match(*fed: np.ndarray) -> FeedReport:
    captures = tuple(capture(value, rank) for rank, value in enumerate(fed))
    return match_feed(captures, REFERENCE, slots=3)


@given(st.lists(st.integers(0, TAPS - 1), min_size=3, max_size=3), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_layout_is_read_back_on_every_rank_through_rounding(layout: list[int], ranks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    exact = feed(tuple(layout))
    report = match(*(exact * (1 + rng.normal(size=exact.shape) * 0.005) for _ in range(ranks)))
    assert report.layout == tuple(layout)
    assert report.fault is None
    assert report.equal_ranks


def test_slices_are_told_from_partial_sums_and_from_divergence() -> None:
    right = feed((0, 3, 7)).reshape(TOKENS, 3, HIDDEN)
    halves = [right[:, :, :8].reshape(TOKENS, -1), right[:, :, 8:].reshape(TOKENS, -1)]
    assert match(*halves).fault == "sliced"
    padded = []
    for rank in range(2):
        part = np.zeros_like(right)
        part[:, :, rank * 8 : (rank + 1) * 8] = right[:, :, rank * 8 : (rank + 1) * 8]
        padded.append(part.reshape(TOKENS, -1))
    assert match(*padded).fault == "sliced"
    assert {m.tap for m in match(*padded).matches} == {0, 3, 7}
    noise = np.random.default_rng(1).normal(size=(TOKENS, 3 * HIDDEN)) * 3
    whole = feed((0, 3, 7))
    summed = match(whole / 2 + noise, whole / 2 - noise)
    assert summed.fault == "partial"
    assert [m.tap for m in summed.matches if m.rank == 1] == [0, 3, 7]
    assert match(whole, whole + noise).fault == "diverged"
    assert match(noise).fault == "unknown"


def test_other_tokens_cannot_be_compared() -> None:
    other = FeedCapture(rank=0, fed=feed((2, 4, 5)), taps=STREAMS, input_ids=IDS + 1)
    with pytest.raises(ValueError, match="other tokens"):
        match_feed((other,), REFERENCE, slots=3)


def test_the_sentence_names_the_slot_that_is_wrong() -> None:
    report = match(feed((2, 4, 5)), feed((2, 4, 5)))
    assert describe_feed(report) == "The draft is fed taps [2, 4, 5] on all 2 ranks."
    assert describe_feed(report, trained_on=(2, 4, 7)) == (
        "The draft is fed taps [2, 4, 5] on all 2 ranks: slot 3 holds tap 5, the draft was trained on 7."
    )
    assert describe_feed(report, trained_on=(2, 4, 5)).endswith("as it was trained.")
