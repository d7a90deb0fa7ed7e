"""Which launches the noise floor is measured on, and that the winner's own launch does not make it too small."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from result_builders import closed_loop, config, launch, record, summary

from results.launch_noise import launch_noise
from results.measured_settings import measured_settings
from results.noise import NoiseFloor
from results.objective import Objective
from results.paired_intervals import PairedIntervals
from results.ranking import rank
from results.records import Role, TrialRecord
from results.report_sentences import caveats
from results.stats.spreads import PRIOR_DEGREES, PRIOR_DEVIATION
from results.switch_speed import SwitchSpeeds
from search_spaces.config import EngineConfig

FIRST, OTHER, BASELINE = config((0, 3, 7)), config((2, 4, 5)), config(None, None)


def trial(trial_id: str, value: float, effective: EngineConfig = FIRST, role: Role = "search", **changes: object):
    length = None if effective.is_baseline else 2.5
    cell = summary(throughput=value, accept_length=length, **changes)  # type: ignore[arg-type]
    return record(trial_id, effective, cells=[cell], role=role)


def floor_of(*records: TrialRecord, intervals: PairedIntervals | None = None) -> NoiseFloor:
    return launch_noise(measured_settings(records), Objective(), intervals=intervals)


def deviation(*distances: float) -> float:
    """Moderated deviation of pairs whose logarithms lie that far apart."""
    squares = sum(distance**2 / 2 for distance in distances)
    return math.sqrt((PRIOR_DEGREES * PRIOR_DEVIATION**2 + squares) / (PRIOR_DEGREES + len(distances)))


def test_every_reason_to_launch_again_counts() -> None:
    floor = floor_of(
        trial("t1", 100.0),
        trial("t2", 103.0),
        trial("b1", 50.0, BASELINE, "baseline"),
        trial("b2", 51.0, BASELINE, "baseline"),
        trial("s1", 80.0, OTHER, "suspect"),
        trial("c1", 82.0, OTHER, "corner"),
        trial("alone", 300.0, config((0, 3, 7), (3, 1, 4))),
    )
    assert (floor.repeats, floor.selected) == (3, False)
    assert floor.spread.deviation == pytest.approx(deviation(*(math.log(x) for x in (1.03, 1.02, 82 / 80))))


def test_the_winner_and_its_confirmation_are_a_pair() -> None:
    floor = floor_of(trial("t1", 110.0), trial("t2", 90.0, OTHER), trial("c1", 100.0, role="confirm"))
    assert (floor.repeats, floor.selected) == (1, True)
    assert floor.spread.degrees == PRIOR_DEGREES + 1
    assert floor.spread.deviation == pytest.approx(deviation(math.log(1.1)))


def test_the_launch_it_won_by_is_left_out_once_it_was_confirmed_twice() -> None:
    confirmed = [trial(f"c{i}", value, role="confirm") for i, value in enumerate((100.0, 101.0))]
    floor = floor_of(trial("t1", 150.0), *confirmed)
    assert (floor.repeats, floor.selected) == (1, False)
    assert floor.spread.deviation == pytest.approx(deviation(math.log(1.01)))
    # of two launches of the search only the better one made it the winner
    floor = floor_of(trial("t1", 150.0), trial("t2", 99.0), confirmed[0])
    assert (floor.repeats, floor.selected) == (1, False)
    assert floor.spread.deviation == pytest.approx(deviation(math.log(100 / 99)))


def test_a_latency_wins_by_being_small() -> None:
    def late(trial_id: str, value: float, role: Role = "search") -> TrialRecord:
        made = trial(trial_id, 100.0, role=role)
        return replace(made, cells=(replace(made.cells[0], tpot_ms_p50=value),))

    groups = measured_settings([late("t1", 5.0), late("t2", 8.0), late("c1", 8.1, "confirm")])
    floor = launch_noise(groups, Objective(metric="tpot_ms_p50"))
    assert floor.spread.deviation == pytest.approx(deviation(math.log(8.1 / 8)))


def test_a_server_that_was_switched_back_is_no_second_launch() -> None:
    def on(trial_id: str, value: float, pid: int, loaded: bool) -> TrialRecord:
        return replace(trial(trial_id, value), launch=launch(pid=pid, weights_loaded=loaded))

    assert floor_of(on("t1", 100.0, 7, True), on("t2", 100.1, 7, False)).repeats == 0
    assert floor_of(on("t1", 100.0, 7, False), on("t2", 100.1, 7, False)).repeats == 0
    assert floor_of(on("t1", 100.0, 7, True), on("t2", 100.1, 9, False)).repeats == 1
    # two fresh servers may be given the same process id by two machines
    assert floor_of(on("t1", 100.0, 7, True), on("t2", 100.1, 7, True)).repeats == 1


def test_cells_that_may_not_be_ranked_tell_nothing() -> None:
    assert floor_of(trial("t1", 100.0), trial("t2", 180.0, not_ranked=("warm cache",))).repeats == 0


def test_launches_that_stopped_at_different_prompts_are_compared_on_shared_ones() -> None:
    # the later prompts are slower, so the longer cell is slower although the launches are alike
    long = closed_loop([1.0] * 20 + [3.0] * 20, 1)
    short = [replace(one, finished_s=one.sent_s + 1.01) for one in long[:20]]
    tables = {"t1": {(1, None): long}, "t2": {(1, None): short}}
    trials = [trial("t1", 50.0, requests=40), trial("t2", 99.0, requests=20)]
    paired = floor_of(*trials, intervals=PairedIntervals(tables.__getitem__))
    assert paired.spread.deviation == pytest.approx(deviation(math.log(1.01)))
    assert floor_of(*trials).spread.deviation == pytest.approx(deviation(math.log(99 / 50)))


@pytest.mark.parametrize("settings", [2, 10, 40])
@pytest.mark.parametrize("behind", [0.0, 2.0])
def test_a_winners_pair_does_not_make_the_floor_too_small(settings: int, behind: float) -> None:
    """Of many studies whose only repeat is the winner's confirmation, 95 in 100 hold what two launches differ by."""
    rng = np.random.default_rng(settings)
    noise, inside, squares, studies = PRIOR_DEVIATION, 0, 0.0, 400
    truth = -behind * noise * (np.arange(settings) > 0)
    for _ in range(studies):
        first = rng.normal(0, noise, settings) + truth
        winner = int(first.argmax())
        again = truth[winner] + rng.normal(0, noise)
        values = [math.exp(first[winner]), math.exp(again)]
        floor = floor_of(trial("t1", values[0]), trial("c1", values[1], role="confirm"))
        inside += abs(rng.normal(0, noise) - rng.normal(0, noise)) <= floor.relative
        squares += (first[winner] - again) ** 2 / 2
    assert inside / studies >= 0.93
    assert 0.9 <= math.sqrt(squares / studies) / noise <= 1.9


def test_the_report_says_what_the_floor_was_measured_on() -> None:
    records = [trial("t1", 110.0), trial("c1", 100.0, role="confirm")]
    words = caveats(rank(records, Objective()))[-1]
    assert "(measured on 1 repeated launch, the winner's among them, which makes it rather too wide)" in words
    assert "assumed" in caveats(rank(records[:1], Objective()))[-1]


def test_a_launch_at_two_loads_is_one_repeat_at_each() -> None:
    """Counted at both it would make the floor of either too narrow."""
    values = {"t1": (100.0, 300.0), "t2": (102.0, 330.0)}
    records = [
        record(trial_id, FIRST, cells=[summary(throughput=one), summary(throughput=eight, concurrency=8)])
        for trial_id, (one, eight) in values.items()
    ]
    speeds = SwitchSpeeds(measured_settings(records), [(1, None), (8, None)], lambda _: {})
    for load, ratio in (((1, None), 1.02), ((8, None), 1.1)):
        floor = speeds.noise(load)
        assert floor.repeats == 1
        assert floor.spread.deviation == pytest.approx(deviation(math.log(ratio)))
