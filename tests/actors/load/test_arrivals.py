"""Arrival times and the two loops."""

from __future__ import annotations

import asyncio
import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.load.arrivals import closed_loop, open_loop, poisson_arrivals


def test_gaps_are_exponential_with_the_rates_mean() -> None:
    gaps = [later - earlier for earlier, later in itertools.pairwise(poisson_arrivals(20_001, 4.0, seed=1))]
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.04)
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.012)  # exp(-1)


@given(count=st.integers(1, 50), rate=st.floats(0.01, 1000), seed=st.integers(0, 2**32))
def test_arrivals_start_at_0_rise_and_scale_with_the_rate(count: int, rate: float, seed: int) -> None:
    times = poisson_arrivals(count, rate, seed)
    assert len(times) == count
    assert times[0] == 0
    assert list(times) == sorted(times)
    assert times == poisson_arrivals(count, rate, seed)
    assert [time * rate for time in times] == pytest.approx(poisson_arrivals(count, 1.0, seed))


@given(count=st.integers(1, 30), concurrency=st.integers(1, 8), seed=st.randoms(use_true_random=False))
def test_a_closed_loop_keeps_its_slots_full_and_its_order(count: int, concurrency: int, seed: object) -> None:
    pauses = [seed.randrange(4) for _ in range(count)]  # type: ignore[attr-defined]
    running = 0
    most = 0
    waiting_when_started: list[int] = []

    async def send(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        waiting_when_started.append(item)
        for _ in range(pauses[item]):
            await asyncio.sleep(0)
        running -= 1
        return item * 10

    assert asyncio.run(closed_loop(range(count), concurrency, send)) == [item * 10 for item in range(count)]
    assert waiting_when_started == list(range(count))
    assert most <= min(concurrency, count)
    if min(pauses) > 0:
        assert most == min(concurrency, count)


@given(count=st.integers(1, 30), concurrency=st.integers(1, 8), limit=st.integers(1, 40))
def test_a_closed_loop_that_had_enough_answers_what_it_sent_and_sends_no_more(
    count: int, concurrency: int, limit: int
) -> None:
    sent: list[int] = []
    answered: list[int] = []

    async def send(item: int) -> int:
        sent.append(item)
        await asyncio.sleep(0)
        answered.append(item)
        return item

    done = asyncio.run(closed_loop(range(count), concurrency, send, enough=lambda: len(answered) >= limit))
    assert done == sent == sorted(answered) == list(range(len(sent)))
    assert len(sent) <= min(count, limit + concurrency - 1) or len(sent) == concurrency
    assert len(sent) >= min(count, limit)


def test_an_open_loop_does_not_wait_for_answers() -> None:
    started: list[int] = []

    async def run() -> list[int]:
        release = asyncio.Event()

        async def send(item: int) -> int:
            started.append(item)
            if len(started) == 5:
                release.set()
            await release.wait()
            return item

        return await asyncio.wait_for(open_loop(range(5), (0.0, 0.0, 0.01, 0.01, 0.02), send), 5)

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]
    assert started == [0, 1, 2, 3, 4]
