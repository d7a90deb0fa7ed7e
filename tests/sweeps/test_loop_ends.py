"""How the driver's loop ends, against doubles: budgets, stops, resuming, confirmations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop_sweeps import Sweep, failing
from search_doubles import fail, setting, succeed

from actors.job import TrialJob, TrialOutcome
from results.failures import Failure, Kind
from search_spaces.errors import EnvironmentProblem
from sweeps.baselines import MAX_CONFIRMED
from sweeps.budget import Budget
from sweeps.tally import ELAPSED


@pytest.mark.parametrize(
    ("budget", "reason", "launches"),
    [
        (Budget(trials=2), "trials", 3),
        (Budget(launches=4), "launches", 4),
        (Budget(trials=6), "exhausted", 7),
        (Budget(trials=50, launches=50), "exhausted", 7),
    ],
)
def test_budgets(budget: Budget, reason: str, launches: int) -> None:
    sweep = Sweep(budget=budget)
    sweep.pool.capacity = 2
    assert sweep.run() == reason
    assert len(sweep.launched) == launches
    if reason != "exhausted":
        # a resumed session has the same budget, not a new one
        assert sweep.again().run() == reason
        after = sweep.again()
        after.run()
        assert after.launched == []


def test_servers_that_came_to_nothing_count_as_launches() -> None:
    """One trial took a room that failed and then its own server."""

    def twice(job: TrialJob) -> TrialOutcome:
        done = succeed(job)
        assert done.launch is not None
        return replace(done, launch=replace(done.launch, extra_starts=1))

    sweep = Sweep(budget=Budget(launches=6))
    sweep.pool.run = twice
    assert sweep.run() == "launches"
    assert len(sweep.launched) == 3
    assert sweep.again().run() == "launches"


def test_the_wall_time_of_earlier_sessions_counts() -> None:
    sweep = Sweep(budget=Budget(wall_time_s=100))
    sweep.study.attrs[ELAPSED] = 70.0

    def slow(job: TrialJob) -> TrialOutcome:
        sweep.now[0] += 20
        return succeed(job)

    sweep.pool.run = slow
    assert sweep.run() == "wall_time_s"
    assert len(sweep.launched) == 2
    assert sweep.study.attrs[ELAPSED] == 110.0


def test_a_stop_gives_back_what_runs_and_records_nothing_for_it() -> None:
    sweep = Sweep()
    sweep.pool.capacity = 2

    def stop_in_second(job: TrialJob) -> TrialOutcome:
        if job.trial_id == "t0000-a1":
            sweep.stop.by = "SIGINT"
        return succeed(job)

    sweep.pool.run = stop_in_second
    assert sweep.run() == "interrupted"
    # baseline and t0000 ran side by side; the last one started ended, the stop came with it
    assert [record.trial_id for record in sweep.store.kept] == ["t0000-a1"]
    assert sweep.events.seen[-1] == ("interrupted", "baseline-tp1-a1")
    after = sweep.again()
    assert after.run() == "exhausted"
    assert after.launched[0] == "baseline-tp1-a1"
    assert len(after.launched) == 6
    assert len({record.effective.identity for record in after.store.kept}) == 7


def test_an_interrupted_search_trial_is_begun_again_with_its_count() -> None:
    sweep = Sweep(fixed=())
    sweep.pool.capacity = 2

    def stop(job: TrialJob) -> TrialOutcome:
        sweep.stop.by = "SIGTERM"
        return succeed(job)

    sweep.pool.run = stop
    assert sweep.run() == "interrupted"
    assert sweep.study.told == [(1, pytest.approx(sweep.study.told[0][1])), (0, "interrupted")]
    after = sweep.again()
    after.run()
    first = after.store.kept[1]
    assert (first.trial_id, first.attempt, first.retry_of) == ("t0002-a2", 2, "t0000-a1")


@pytest.mark.parametrize("kind", ["no_engine", "environment", "simulated"])
def test_a_failure_that_every_trial_would_meet_stops_the_sweep_and_loses_no_trial(kind: Kind) -> None:
    sweep = Sweep(fixed=())
    sweep.study.add(setting(steps=2, tokens=2), role="suspect", label="suspect")
    sweep.pool.run = failing(kind)
    with pytest.raises(EnvironmentProblem, match=f"trial t0000-a1: because of {kind}"):
        sweep.run()
    assert sweep.study.kept[0].was_lost
    after = sweep.again()
    assert after.run() == "exhausted"
    assert after.store.kept[1].role == "suspect"
    assert after.store.kept[1].trial_id == "t0001-a2"


@pytest.mark.parametrize(("retries", "launches"), [(0, 3), (1, 3), (2, 4), (5, 7)])
@pytest.mark.parametrize("capacity", [1, 2])
def test_a_machine_that_fails_setting_after_setting_ends_the_sweep_and_settles_none(
    retries: int, launches: int, capacity: int
) -> None:
    sweep = Sweep(fixed=(), retries=retries)
    sweep.study.add(setting(steps=2, tokens=2), role="suspect", label="suspect")
    sweep.pool.run, sweep.pool.capacity = failing("machine"), capacity
    with pytest.raises(EnvironmentProblem, match=r"^trial t000\d-a\d: because of machine \(\d launches in a row"):
        sweep.run()
    assert len(sweep.store.kept) <= launches
    assert {value for _, value in sweep.study.told} == {"interrupted"}
    after = sweep.again()
    assert after.run() == "exhausted"
    measured = [record for record in after.store.kept if record.ok]
    assert len({record.effective for record in measured}) == len(measured) == 6
    assert [record.role for record in measured].count("suspect") == 1


def test_a_setting_that_alone_fails_on_the_machine_is_settled_by_the_others_that_run() -> None:
    sweep = Sweep(fixed=())
    sweep.pool.run = failing("machine", on=lambda job: job.trial_id.startswith("t0000"))
    assert sweep.run() == "exhausted"
    assert sweep.launched[:4] == ["t0000-a1", "t0000-a2", "t0000-a3", "t0001-a1"]
    assert len(sweep.launched) == 3 + 5
    assert (0, "machine") in sweep.study.told


def test_trouble_with_the_machine_between_results_ends_nothing() -> None:
    sweep = Sweep(fixed=())
    sweep.pool.run = failing("machine", on=lambda job: int(job.trial_id[1:5]) % 2 == 0)
    assert sweep.run() == "exhausted"
    assert [value for _, value in sweep.study.told if isinstance(value, str)] == ["machine"] * 3
    assert len(sweep.launched) == 3 * 3 + 3


def test_a_setting_put_off_counts_against_the_budget_and_comes_back_after_a_stop() -> None:
    sweep = Sweep(fixed=(), budget=Budget(trials=1))
    sweep.pool.run = failing("machine")
    assert sweep.run() == "trials"
    assert sweep.launched == ["t0000-a1", "t0000-a2", "t0000-a3"]
    assert sweep.study.told == [(0, "machine")]

    sweep = Sweep(fixed=())

    def stop_at_second(job: TrialJob) -> TrialOutcome:
        if job.trial_id.startswith("t0001"):
            sweep.stop.by = "SIGINT"
            return fail(job, Failure(phase="launch", kind="timeout", message="late"))
        return fail(job, Failure(phase="launch", kind="machine", message="full"))

    sweep.pool.run = stop_at_second
    assert sweep.run() == "interrupted"
    assert sweep.study.told == [(0, "interrupted"), (1, "interrupted")]


def test_a_confirmation_that_always_fails_is_not_tried_for_ever() -> None:
    for kind in ("machine", "lost_actor"):
        sweep = Sweep(confirmations=2, budget=Budget(launches=50))
        sweep.pool.run = failing(kind, on=lambda job: job.trial_id.startswith("confirm"))
        assert sweep.run() == "exhausted"
        assert len(sweep.launched) == 7 + 2 * 3


def test_a_baseline_that_was_lost_is_tried_again_in_the_next_session() -> None:
    sweep = Sweep(retries=0)
    sweep.pool.run = failing("lost_node", times=1, on=lambda job: job.config.is_baseline)
    sweep.run()
    after = sweep.again()
    after.run()
    assert after.launched == ["baseline-tp1-a2"]
    assert after.store.kept[-1].retry_of == "baseline-tp1-a1"


def test_whatever_leads_is_confirmed_also_when_a_confirmation_puts_another_in_front() -> None:
    sweep = Sweep(confirmations=1)
    sweep.pool.run = lambda job: succeed(job, slower=2.0 if job.trial_id.startswith("confirm") else 1.0)
    assert sweep.run() == "exhausted"
    confirmed = [record.effective for record in sweep.store.kept if record.role == "confirm"]
    # the first three were in front one after the other: each is half as fast when it is launched again
    assert len({config.identity for config in confirmed}) == len(confirmed) == MAX_CONFIRMED
    searched = {r.effective: r.cells[0].output_throughput.value for r in sweep.store.kept if r.role == "search"}
    assert confirmed == sorted(searched, key=lambda config: -searched[config])[:MAX_CONFIRMED]
    after = sweep.again()
    assert after.run() == "exhausted"
    assert after.launched == []


def test_a_winner_that_holds_is_confirmed_once() -> None:
    sweep = Sweep(confirmations=2)
    sweep.run()
    confirmed = [record for record in sweep.store.kept if record.role == "confirm"]
    assert [record.trial_id[-4:] for record in confirmed] == ["1-a1", "2-a1"]
    assert len({record.effective.identity for record in confirmed}) == 1
