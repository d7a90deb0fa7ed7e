"""Acceptance that no draft could have earned: SGLang's SGLANG_SIMULATE_ACC_LEN, seen in the counters alone."""

from __future__ import annotations

from collections.abc import Sequence

MIN_STEPS = 200
CLIFF = (0.02, 0.98)
"""Real drafts fall off slowly: after positions that never failed once in 200 steps comes none that fails like this."""


def looks_simulated(histogram: Sequence[int], num_steps: int) -> bool:
    """Whether every verify step accepted one and the same number of drafts, or one of two neighbouring numbers.

    That is what the `match-expected` method draws (`sample_simulated_acc_len` of `srt/speculative/spec_utils.py`): the
    asked length rounded down or up. Never said of fewer than 200 steps, of lengths that a useless or a perfect draft
    has as well (nothing or everything accepted), or where the lower number is 0.
    """
    steps = sum(histogram)
    taken = [drafts for drafts, count in enumerate(histogram) if count]
    if steps < MIN_STEPS or not taken or taken[0] == 0:
        return False
    if len(taken) == 1:
        return taken[0] < num_steps
    low, high = CLIFF
    return len(taken) == 2 and taken[1] == taken[0] + 1 and low < histogram[taken[1]] / steps < high
