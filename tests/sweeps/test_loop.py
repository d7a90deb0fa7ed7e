"""The driver's loop against doubles: order of writes, duplicates, retries, what waits for what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop_sweeps import BASELINE, Sweep, failing
from search_doubles import SMALL, MemoryStudy, resolve, setting, succeed
from trial_builders import WORKLOAD, baseline, config

from actors.job import TrialJob, TrialOutcome
from sweeps.budget import Budget
from sweeps.legal_space import LegalSpace
from sweeps.tasks import FixedTrial


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
    assert sweep.study.kept[0].attrs["message"] == "no cell at the first concurrency"


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
