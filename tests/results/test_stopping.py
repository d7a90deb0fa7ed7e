"""Adaptive stopping: as soon as the intervals allow, and rarely against the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from result_builders import closed_loop, spec_row

from results.cells import throughput_pairs
from results.stats.ratios import ratio_of_sums
from results.stopping import StopRule, stop_reason
from results.summary import Estimate
from search_spaces.config import Triple

CHAIN = Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4)


def rows_of(prompts: int, spread: float, seed: int = 0, mean_s: float = 1.0):
    latencies = np.random.default_rng(seed).normal(mean_s, spread * mean_s, prompts).clip(0.05)
    return closed_loop(latencies.tolist(), 2, tokens=50, chunk_times_s=(), chunk_tokens=())


def stops_at(rows, rule: StopRule, triple: Triple | None = None) -> tuple[int, str] | None:
    for seen in range(4, len(rows) + 1, 4):
        reason = stop_reason(rows[:seen], 2, triple, rule)
        if reason is not None:
            return seen, reason
    return None


def test_even_requests_stop_early_and_varied_ones_later() -> None:
    even = stops_at(rows_of(400, 0.04), StopRule())
    varied = stops_at(rows_of(400, 0.15), StopRule())
    assert even is not None
    assert varied is not None
    assert 32 <= even[0] < 40
    # 1.96 x 0.15 / sqrt(n) = 0.02 at n = 216.
    assert varied[0] == pytest.approx(216, rel=0.25)
    assert "narrow enough" in even[1]
    assert stops_at(rows_of(100, 0.3), StopRule()) is None


def test_never_before_the_least_number_of_prompts_or_two_rounds() -> None:
    rows = rows_of(60, 0.001)
    assert stop_reason(rows[:31], 2, None, StopRule()) is None
    assert stop_reason(rows[:32], 2, None, StopRule()) is not None
    assert stop_reason(rows[:39], 2, None, StopRule(min_prompts=40)) is None
    assert stop_reason(rows[:40], 2, None, StopRule(min_prompts=40)) is not None
    assert stop_reason(rows[:40], 32, None, StopRule()) is None
    assert stop_reason([], 2, None, StopRule()) is None


def test_accept_length_must_be_narrow_too() -> None:
    rng = np.random.default_rng(1)
    rows = [
        spec_row(f"p{i}", tuple(int(n) for n in rng.multinomial(40, rng.dirichlet((1, 1, 1, 1)))), 4, finished_s=1.0)
        for i in range(40)
    ]
    assert stop_reason(rows, 1, CHAIN, StopRule(half_width=0.05)) is None
    alike = [spec_row(f"p{i}", (10, 10, 10, 10), 4, finished_s=1.0) for i in range(40)]
    assert "narrow" in (stop_reason(alike, 1, CHAIN, StopRule()) or "")


def test_a_switched_server_that_counts_proposed_drafts_wrongly_stops_all_the_same() -> None:
    rows = [spec_row(f"p{i}", (10, 10, 10, 10), 4, finished_s=1.0) for i in range(40)]
    switched = [replace(one, proposed_drafts=(one.verify_steps or 0) * 63) for one in rows]
    assert stop_reason(switched, 1, CHAIN, StopRule()) == stop_reason(rows, 1, CHAIN, StopRule()) is not None


def test_a_clearly_worse_setting_is_dropped_soon_and_says_so() -> None:
    rival = Estimate(value=200.0, low=195.0, high=205.0, count=80)
    stopped = stops_at(rows_of(400, 0.3), StopRule(rival=rival))
    assert stopped is not None
    assert stopped[0] <= 24
    assert "dominated" in stopped[1]


def test_an_equal_setting_is_hardly_ever_dismissed() -> None:
    dismissed = 0
    for seed in range(60):
        rows = rows_of(80, 0.2, seed)
        rival = Estimate(value=100.0, low=98.0, high=102.0, count=80)
        stopped = stops_at(rows, StopRule(rival=rival, half_width=0.001))
        dismissed += stopped is not None
    assert dismissed <= 2


@pytest.mark.parametrize("changes", [{"half_width": 0.0}, {"half_width": 1.5}, {"min_prompts": 1}])
def test_rules_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be within"):
        StopRule(**changes)


def test_intervals_of_stopped_cells_hold_the_truth_where_few_prompts_suffice() -> None:
    """Looks from 16 prompts on, with the same draws, end at the luckiest: 90 of 100 hold it."""
    runs, deviation, covered = 500, 0.5, 0
    truth = 50 / np.exp(deviation**2 / 2)
    for run in range(runs):
        latencies = np.exp(np.random.default_rng([7, run]).normal(0, deviation, 120))
        rows = closed_loop(latencies.tolist(), 2, tokens=50, chunk_times_s=(), chunk_tokens=())
        rows = sorted(rows, key=lambda row: row.finished_s)
        stopped = stops_at(rows, StopRule(half_width=0.2))
        assert stopped is not None
        end_s = rows[stopped[0] - 1].finished_s
        pairs = throughput_pairs([row for row in rows if row.sent_s <= end_s])
        rate = ratio_of_sums(*zip(*pairs.values(), strict=True))
        covered += rate.low <= truth <= rate.high
    # of 500 at 95 %, fewer than 465 hold it once in 40 times
    assert covered / runs >= 0.93
