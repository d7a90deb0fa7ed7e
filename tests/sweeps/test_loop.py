"""The driver's loop against doubles: order of writes, duplicates, retries, budgets, stopping and resuming."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from search_doubles import SMALL, Events, InstantPool, MemoryStore, MemoryStudy, fail, resolve, setting, succeed
from trial_builders import WORKLOAD, baseline, config

from actors.job import TrialJob, TrialOutcome
from results.failures import Failure, Kind
from results.objective import Objective
from results.records import TrialRecord
from search_spaces.errors import EnvironmentProblem
from sweeps.baselines import MAX_CONFIRMED
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import LoopPlan, SweepLoop
from sweeps.tally import ELAPSED
from sweeps.tasks import FixedTrial

BASELINE = FixedTrial(base="baseline-tp1", role="baseline", setting=None, config=baseline())


class Sweep:
    """One session with doubles; `again` makes the next one over the same study and records."""

    def __init__(self, records: Sequence[TrialRecord] = (), **options: Any) -> None:
        self.repeats = options.pop("repeats", 1)
        self.plan = {"workload": WORKLOAD, "budget": Budget(), "retries": 2, "fixed": (BASELINE,), **options}
        self.store = MemoryStore(records)
        self.legal = LegalSpace(SMALL, resolve)
        self.ledger = Ledger(records, repeats=self.repeats)
        self.study = MemoryStudy(self.legal, self.ledger)
        self.pool, self.events, self.stop = InstantPool(), Events(), StopRequest()
        self.now = [0.0]

    def run(self) -> str:
        loop = SweepLoop(
            study=self.study,
            store=self.store,
            pool=self.pool,
            legal=self.legal,
            ledger=self.ledger,
            plan=LoopPlan(objective=Objective(), repeats=self.repeats, **self.plan),
            observer=self.events,
            stop=self.stop,
            heartbeat=lambda: None,
            clock=lambda: self.now[0],
        )
        return loop.run()

    def again(self) -> Sweep:
        after = Sweep(self.store.records(), repeats=self.repeats, **self.plan)
        after.study.kept, after.study.attrs = self.study.kept, self.study.attrs
        return after

    @property
    def launched(self) -> list[str]:
        return [job.trial_id for job in self.pool.launched]


def failing(kind: Kind, times: int = 99, on: Callable[[TrialJob], bool] = lambda job: True) -> Any:
    left = [times]

    def run(job: TrialJob) -> TrialOutcome:
        if on(job) and left[0] > 0:
            left[0] -= 1
            return fail(job, Failure(phase="launch", kind=kind, message=f"because of {kind}"))
        return succeed(job)

    return run


def searching(job: TrialJob) -> bool:
    return not job.config.is_baseline


def test_baseline_first_then_every_server_once() -> None:
    sweep = Sweep()
    assert sweep.run() == "exhausted"
    assert sweep.launched == ["baseline-tp1-a1", *(f"t000{i}-a1" for i in range(6))]
    assert len({job.config.identity for job in sweep.pool.launched}) == 7
    last = sweep.events.standings[-1]
    assert (last.done, last.failed, last.running, last.left) == (7, 0, 0, 0)
    assert [record.role for record in sweep.store.kept] == ["baseline", *["search"] * 6]
    # 82 tokens in 8/(2+3) s for (2,1,3) under the layout 0,3,7
    told = {sweep.study.kept[number].setting: value for number, value in sweep.study.told}
    assert told[setting(steps=2, tokens=2)] == pytest.approx(82 / (8 / 5))


def test_the_record_is_written_before_the_study_and_the_study_before_the_observers() -> None:
    sweep = Sweep(fixed=())
    order: list[str] = []
    write, tell, finished = sweep.store.write_trial, sweep.study.tell_value, sweep.events.finished
    sweep.store.write_trial = lambda *a: (order.append("record"), write(*a))[1]  # type: ignore[method-assign, func-returns-value]
    sweep.study.tell_value = lambda *a: (order.append("study"), tell(*a))[1]  # type: ignore[method-assign, func-returns-value]
    sweep.events.finished = lambda r: (order.append("view"), finished(r))[1]  # type: ignore[method-assign, func-returns-value]
    sweep.run()
    assert order == ["record", "study", "view"] * 6


def test_a_duplicate_is_answered_from_the_record_without_a_launch() -> None:
    sweep = Sweep()
    # (1,1,2) three times under three names, and once more by hand
    for tokens in (2, 4, 8):
        sweep.study.add(setting(steps=1, tokens=tokens))
    assert sweep.run() == "exhausted"
    assert len(sweep.launched) == 7
    assert sweep.events.seen.count(("answered", "t0000-a1")) == 2
    values = dict(sweep.study.told)
    assert values[0] == values[1] == values[2]
    assert sweep.study.kept[1].attrs["answered_from"] == "t0000-a1"
    assert "trial_id" not in sweep.study.kept[1].attrs


def test_a_duplicate_of_a_running_trial_waits_for_it() -> None:
    sweep = Sweep(fixed=())
    sweep.pool.capacity = 2
    sweep.study.add(setting(steps=1, tokens=2))
    sweep.study.add(setting(steps=1, tokens=4))
    sweep.run()
    assert len(sweep.launched) == len(set(sweep.launched)) == 6
    assert ("answered", "t0000-a1") in sweep.events.seen


def test_repeats_launch_an_asked_configuration_again() -> None:
    sweep = Sweep(repeats=2, fixed=())
    for _ in range(3):
        sweep.study.add(setting(steps=1, tokens=2))
    sweep.plan["budget"] = Budget(trials=3)
    assert sweep.run() == "trials"
    assert sweep.launched == ["t0000-a1", "t0001-a1"]
    assert sweep.events.seen[-1] == ("answered", "t0000-a1")
    # a server that still runs would tell nothing about how launches differ
    assert [job.fresh for job in sweep.pool.launched] == [False, True]


def test_repeated_baselines_are_fresh_launches() -> None:
    again = FixedTrial(base="baseline-tp1-2", role="baseline", setting=None, config=baseline())
    sweep = Sweep(fixed=(BASELINE, again), budget=Budget(trials=0))
    sweep.run()
    assert [(job.trial_id, job.fresh) for job in sweep.pool.launched] == [
        ("baseline-tp1-a1", False),
        ("baseline-tp1-2-a1", True),
    ]


def test_infrastructure_failures_are_retried_a_bounded_number_of_times() -> None:
    sweep = Sweep(fixed=(), budget=Budget(trials=1))
    sweep.pool.run = failing("lost_actor", times=2)
    assert sweep.run() == "trials"
    assert sweep.launched == ["t0000-a1", "t0000-a2", "t0000-a3"]
    assert [record.retry_of for record in sweep.store.kept] == [None, "t0000-a1", "t0000-a2"]
    assert [state for _, state in sweep.study.told] == [pytest.approx(82 / 2.0)]

    sweep = Sweep(fixed=(), budget=Budget(trials=1))
    sweep.pool.run = failing("lost_actor")
    sweep.run()
    assert len(sweep.launched) == 3
    assert sweep.study.told == [(0, "lost_actor")]
    last = sweep.events.standings[-1]
    assert (last.done, last.failed) == (1, 1)


def test_a_given_up_configuration_is_not_proposed_again_in_this_session() -> None:
    sweep = Sweep(fixed=())
    sweep.pool.run = failing("timeout")
    assert sweep.run() == "exhausted"
    assert len(sweep.launched) == 6 * 3
    # the next session may try them again: the cluster may have been mended
    after = sweep.again()
    assert after.run() == "exhausted"
    assert len(after.launched) == 6


def test_failures_of_a_configuration_are_told_once_and_never_retried() -> None:
    sweep = Sweep(fixed=())
    sweep.pool.run = failing("crash")
    sweep.run()
    assert len(sweep.launched) == 6
    assert [kind for _, kind in sweep.study.told] == ["crash"] * 6
    assert sweep.again().run() == "exhausted"


def test_larger_trees_are_not_launched_after_an_out_of_memory() -> None:
    sweep = Sweep(fixed=())
    sweep.study.add(setting(steps=1, topk=4, tokens=4))
    sweep.study.add(setting(steps=2, topk=4, tokens=8))
    sweep.pool.run = failing("oom", times=1)
    sweep.run()
    # (2,4,8) and (2,4,4) need at least what (1,4,4) did not get
    assert sorted(str(job.config.triple) for job in sweep.pool.launched) == ["(1,1,2)", "(1,4,2)", "(1,4,4)", "(2,1,3)"]
    message = sweep.study.kept[1].attrs["message"]
    assert message == "not launched: (1,4,4) ran out of memory and (2,4,8) needs at least as much"


def test_an_illegal_enqueued_setting_is_refused_not_launched() -> None:
    sweep = Sweep(fixed=())
    sweep.study.add(setting(steps=1, topk=4, tokens=8))
    sweep.run()
    assert sweep.study.kept[0].attrs["message"] == "tree_pool: need n-1=7 > pool"
    assert len(sweep.launched) == 6


def test_a_missing_value_is_never_told_as_a_number() -> None:
    sweep = Sweep(fixed=(), budget=Budget(trials=1))

    def without_cells(job: TrialJob) -> TrialOutcome:
        outcome = succeed(job)
        return TrialOutcome(**{**outcome.__dict__, "cells": ()})

    sweep.pool.run = without_cells
    sweep.run()
    assert sweep.study.told == [(0, "no_metric")]
    assert sweep.study.kept[0].attrs["message"] == "no cell at concurrency None"


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


def test_a_failure_that_every_trial_would_meet_stops_the_sweep_and_loses_no_trial() -> None:
    sweep = Sweep(fixed=())
    sweep.study.add(setting(steps=2, tokens=2), role="suspect", label="suspect")
    sweep.pool.run = failing("no_engine")
    with pytest.raises(EnvironmentProblem, match="trial t0000-a1: because of no_engine"):
        sweep.run()
    assert sweep.study.kept[0].was_lost
    after = sweep.again()
    assert after.run() == "exhausted"
    assert after.store.kept[1].role == "suspect"
    assert after.store.kept[1].trial_id == "t0001-a2"


def test_a_baseline_that_was_lost_is_tried_again_in_the_next_session() -> None:
    sweep = Sweep(retries=0)
    sweep.pool.run = failing("lost_node", times=1, on=lambda job: job.config.is_baseline)
    sweep.run()
    after = sweep.again()
    after.run()
    assert after.launched == ["baseline-tp1-a2"]
    assert after.store.kept[-1].retry_of == "baseline-tp1-a1"


def test_fixed_trials_wait_for_their_turn() -> None:
    late = FixedTrial(base="baseline-tp1-r2", role="baseline", setting=None, config=baseline(), due_after=3)
    outside = FixedTrial(base="suspect-1", role="suspect", setting=setting(steps=5, tokens=6), config=config(5))
    sweep = Sweep(fixed=(BASELINE, outside, late))
    sweep.run()
    assert sweep.launched[:2] == ["baseline-tp1-a1", "suspect-1-a1"]
    assert sweep.launched.index("baseline-tp1-r2-a1") == 5
    assert sweep.again().run() == "exhausted"


def test_standing_counts_what_is_left() -> None:
    sweep = Sweep(budget=Budget(trials=4))
    sweep.run()
    lefts = [standing.left for standing in sweep.events.standings]
    assert lefts[0] == 5
    assert lefts[-1] == 0
    assert sweep.events.standings[0].time_left_s is None
    # one trial of 10 s is over, four are left
    after_first = next(standing for standing in sweep.events.standings if standing.done == 1)
    assert after_first.time_left_s == pytest.approx(40.0)


def test_only_trials_of_the_search_have_a_rival_and_only_when_cells_may_stop() -> None:
    sweep = Sweep(workload=replace(WORKLOAD, half_width=0.02), confirmations=1)
    assert sweep.run() == "exhausted"
    first, *searched, confirmed = sweep.pool.launched
    assert (first.rival, searched[0].rival, confirmed.rival) == (None, None, None)
    fastest = 0.0
    for job in searched[1:]:
        told = [record for record in sweep.store.kept if record.role == "search"]
        earlier = [record for record in told if record.trial_id < job.trial_id]
        fastest = max(record.cells[0].output_throughput.value for record in earlier)
        assert job.rival is not None
        assert job.rival.throughput.value == pytest.approx(fastest)
    assert fastest > 0
    plain = Sweep()
    plain.run()
    assert {job.rival for job in plain.pool.launched} == {None}


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


def test_what_the_engine_refuses_is_neither_proposed_nor_launched() -> None:
    sweep = Sweep(fixed=())
    sweep.study.add(setting(steps=2, tokens=2))
    for found in sweep.legal.configs:
        if found.triple is not None and found.triple.eagle_topk == 1:
            sweep.ledger.refuse(found, "SGLang refuses its arguments: why")
    assert sweep.run() == "exhausted"
    assert sorted(str(job.config.triple) for job in sweep.pool.launched) == ["(1,4,2)", "(1,4,4)", "(2,4,4)", "(2,4,8)"]
    assert sweep.study.told[0] == (0, "bad_config")
    assert sweep.study.kept[0].attrs["message"] == "SGLang refuses its arguments: why"


def test_a_baseline_waits_for_the_first_trial_of_its_tp_size() -> None:
    sizes = (1, 2)
    sweep = Sweep(
        fixed=tuple(
            FixedTrial(base=f"baseline-tp{n}", role="baseline", setting=None, config=baseline(n), before_its_tp=n > 1)
            for n in (*sizes, 4)
        )
    )
    sweep.legal = LegalSpace(replace(SMALL, num_steps=(1,), tp_size=sizes), resolve)
    sweep.study = MemoryStudy(sweep.legal, sweep.ledger)
    assert sweep.run() == "exhausted"
    order = [(job.trial_id.rpartition("-a")[0], job.config.tp_size) for job in sweep.pool.launched]
    first = next(i for i, (_, size) in enumerate(order) if size == 2)
    assert order[0] == ("baseline-tp1", 1)
    assert first > 1
    assert order[first] == ("baseline-tp2", 2)
    # one that no trial needs comes last
    assert order[-1] == ("baseline-tp4", 4)
    assert len(order) == len(set(order)) == 3 + len(sweep.legal.configs)
