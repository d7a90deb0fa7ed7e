"""The simulated machines of the search benchmark, and what a search on them counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.invented_machines import invented
from benchmarks.search_grid import WITHIN, search
from benchmarks.search_truth import CONCURRENCIES, RoundTimes, Truth, quicker_with_more
from search_spaces.config import Triple

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "search_truth.json"


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth.read(DATA)


def row(triple: tuple[int, int, int], concurrency: int, step_s: float, number: int) -> dict[str, float]:
    names = ("num_steps", "eagle_topk", "num_draft_tokens", "concurrency", "batch", "step_s", "pass")
    return dict(zip(names, (*triple, concurrency, concurrency, step_s, number), strict=True))


def test_the_quickest_pass_counts_and_a_power_law_is_interpolated_exactly() -> None:
    rows = [
        row((s, k, n), c, factor * 0.01 * s**0.5 * k**0.1 * n**0.2 * c**0.3, number)
        for s, k, n in [(1, 1, 2), (2, 2, 4), (3, 2, 8), (4, 4, 16), (5, 1, 6), (6, 8, 32), (8, 4, 9), (7, 2, 24)]
        for c in CONCURRENCIES
        for number, factor in enumerate((1.1, 1.0))
    ]
    times = RoundTimes.read(rows)
    assert np.exp(times.logs[0]) == pytest.approx(0.01 * 2**0.2)
    assert times.scatter == pytest.approx(1.4826 * np.log(1.1) / 2**0.5)
    assert np.abs(times.errors_left_out(1.0)).max() < 1e-6


def test_the_space_and_its_machines(truth: Truth) -> None:
    assert len(truth.settings) == 576
    first, again, other = (truth.world(seed, own_ways=0.02, noise=0.01) for seed in (100, 100, 101))
    assert first == again
    assert first != other
    exact = truth.world(100, own_ways=0.0, noise=0.0)
    assert exact.true == exact.shown
    setting = next(s for s in truth.settings if s.tp_size == 2)
    assert abs(np.log(first.true[setting][4] / exact.true[setting][4])) < 0.1
    strange = invented(truth, 100)
    assert strange.settings == truth.settings
    assert quicker_with_more(strange.triples, strange.log_times[1]) == 0.0
    assert quicker_with_more(truth.triples, truth.log_times[1]) < 0.06


@pytest.mark.parametrize("method", ["ours", "random"])
def test_a_search_ends_with_a_good_setting_at_every_concurrency(truth: Truth, method: str) -> None:
    world = truth.world(100, own_ways=0.02, noise=0.01)
    (visits,) = search(method, truth, world, 100)
    assert all(visits.found(concurrency) for concurrency in CONCURRENCIES)
    assert len(set(visits.measured)) == len(visits.measured)
    assert visits.cells == 3 * len(visits.measured)
    assert visits.seconds(600.0) - visits.seconds(20.0) == 580.0 * visits.launches
    assert visits.launches >= 1
    last = visits.measured.pop()
    assert not all(visits.found(concurrency) for concurrency in CONCURRENCIES), last


def test_what_counts_as_good(truth: Truth) -> None:
    world = truth.world(100, own_ways=0.02, noise=0.01)
    for concurrency in CONCURRENCIES:
        best = max(of[concurrency] for of in world.true.values())
        worst = min(world.true[s][concurrency] for s in world.good(concurrency, WITHIN))
        assert 0.99 * best <= worst <= best
    assert Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2) in truth.triples
