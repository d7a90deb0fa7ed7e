"""The bootstrap of a closed loop against the loop itself."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.closed_loop import _idle_s, closed_loop_throughput


@settings(max_examples=60, deadline=None)
@given(
    latencies=st.lists(st.floats(0.01, 9.0), min_size=1, max_size=20),
    slots=st.integers(1, 6),
)
def test_idle_time_is_that_of_the_loop(latencies: list[float], slots: int) -> None:
    free = [0.0] * slots
    for latency in latencies:
        heapq.heappush(free, heapq.heappop(free) + latency)
    expected = slots * max(free) - sum(free)
    assert _idle_s(np.asarray([latencies, latencies]), slots).tolist() == pytest.approx([expected] * 2, abs=1e-9)


def test_one_slot_has_no_drain_and_one_prompt_no_spread() -> None:
    estimate = closed_loop_throughput([10.0] * 4, [1.0, 2.0, 3.0, 4.0], slots=1, duration_s=10.0)
    assert estimate.value == pytest.approx(4.0)
    assert estimate.low < 4.0 < estimate.high
    alone = closed_loop_throughput([10.0], [2.0], slots=1, duration_s=2.0)
    assert (alone.low, alone.value, alone.high) == (5.0, 5.0, 5.0)
    with pytest.raises(ValueError, match="any time"):
        closed_loop_throughput([1.0], [0.0], slots=1, duration_s=1.0)


def test_the_idle_end_is_paid_once() -> None:
    half = closed_loop_throughput([10.0] * 8, [1.0] * 8, slots=2, duration_s=5.0, share=2.0)
    assert half.value == pytest.approx(2 * 2 * 80 / (2 * 8 + 2))


def test_pauses_between_requests_move_the_interval_with_the_value() -> None:
    latencies = np.random.default_rng(1).gamma(9, 1 / 9, 60).tolist()
    prompt = closed_loop_throughput([10.0] * 60, latencies, slots=1, duration_s=sum(latencies))
    paused = closed_loop_throughput([10.0] * 60, latencies, slots=1, duration_s=1.25 * sum(latencies))
    assert paused.value == pytest.approx(prompt.value / 1.25)
    assert paused.low == pytest.approx(prompt.low / 1.25)
    assert paused.high == pytest.approx(prompt.high / 1.25)
    assert type(prompt.value) is float
