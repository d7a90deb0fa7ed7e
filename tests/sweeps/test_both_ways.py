"""What is measured both ways, what is confirmed, and launching once switching is not trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from search_doubles import LAYOUTS, SMALL, SPACE, InstantPool, MemoryStore, MemoryStudy, resolve, setting
from trial_builders import WORKLOAD, cell, config, launch

from actors.job import TrialJob, TrialOutcome
from results.objective import Objective
from results.observations import CellObservation
from results.records import Role, TrialRecord
from results.request_table import rows_by_cell
from search_spaces.config import EngineConfig, Setting
from sweeps.baselines import MAX_CONFIRMED, both_ways, check_trial, confirming_trials
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan
from sweeps.recording import record_of
from sweeps.switch_watch import SwitchWatch
from sweeps.tasks import FixedTrial, open_tasks

TWO_SIZES = replace(SPACE, layout=("0,3,7", "default"), tp_size=(2, 1))


def test_what_the_user_has_is_measured_both_ways_where_the_smallest_tp_has_it() -> None:
    legal = LegalSpace(TWO_SIZES, resolve)
    suspect = setting("default", 2, 1, 2)
    assert both_ways(legal, suspect) == suspect
    # a suspect at another TP size is not; the first legal setting of the smallest size is
    assert both_ways(legal, setting("default", 2, 1, 2, tp_size=2)) == setting("0,3,7", 1, 1, 2)
    # the draft as shipped is tried first anyway, here at tp 2
    assert both_ways(legal, None) == setting("0,3,7", 1, 1, 2)
    assert both_ways(LegalSpace(replace(TWO_SIZES, tp_size=(1,)), resolve), None) == setting("default", 1, 1, 2)
    assert LAYOUTS["default"] == (2, 4, 5)


def test_a_space_of_one_server_has_nothing_to_switch() -> None:
    alone = replace(SMALL, num_steps=(1,), eagle_topk=(1,), num_draft_tokens=(2,))
    assert both_ways(LegalSpace(alone, resolve), None) is None


def test_a_check_is_a_fresh_launch_that_is_no_trial_of_the_search() -> None:
    legal = LegalSpace(SMALL, resolve)
    trial = check_trial(legal, setting(steps=1, tokens=2))
    ((due, task),) = open_tasks([trial], [])
    assert (due, task.fresh, task.role, task.config) == (0, True, "check", config(1, 1))
    record = record_of("s", task, outcome(TrialJob(trial_id=task.trial_id, config=task.config, workload=WORKLOAD)))
    assert Ledger([record]).is_unseen(task.config)
    assert open_tasks([trial], [record]) == []


def outcome(job: TrialJob, *, seconds: float = 2.0, switched: bool = False) -> TrialOutcome:
    observed: CellObservation = cell(seconds=seconds, triple=job.config.triple)
    how: dict[str, Any] = {"switch_s": 0.4, "weights_loaded": False} if switched else {}
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=100.0,
        finished_at_unix_s=110.0,
        launch=replace(launch(), **how),
        cells=(observed,),
        failure=None,
        server_log="log",
    )


def measured(name: str, what: EngineConfig, seconds: float, role: Role = "search") -> TrialRecord:
    asked = Setting(layout="0,3,7", num_steps=1, eagle_topk=1, num_draft_tokens=2, tp_size=1)
    task = open_tasks([FixedTrial(base=name, role=role, setting=asked, config=what)], [])[0][1]
    job = TrialJob(trial_id=task.trial_id, config=what, workload=WORKLOAD)
    return record_of("s", task, outcome(job, seconds=seconds))


def confirmed_next(records: Sequence[TrialRecord], count: int = 1) -> list[tuple[str, EngineConfig]]:
    left = open_tasks(confirming_trials(records, Objective(), count), records)
    return [(task.base, task.config) for _, task in left]


A, B, C, D = (config(steps) for steps in (2, 3, 4, 5))


def test_whoever_is_ahead_after_a_confirmation_is_confirmed_too() -> None:
    records = [measured("t1", A, 1.0), measured("t2", B, 1.5), measured("t3", C, 4.0)]
    base = f"confirm-{A.identity[:6]}"
    assert confirmed_next(records) == [(f"{base}-1", A)]
    assert confirmed_next(records, 2) == [(f"{base}-1", A), (f"{base}-2", A)]
    # the lucky one is not that fast on a fresh launch: now B is ahead
    records.append(measured(f"{base}-1", A, 2.0, "confirm"))
    assert confirmed_next(records) == [(f"confirm-{B.identity[:6]}-1", B)]
    records.append(measured(f"confirm-{B.identity[:6]}-1", B, 1.5, "confirm"))
    assert confirmed_next(records) == []


def test_a_fresh_launch_for_a_check_confirms() -> None:
    records = [measured("t1", A, 1.0), measured(f"check-{A.identity[:6]}", A, 1.02, "check"), measured("t2", B, 3.0)]
    assert confirmed_next(records) == []
    assert confirmed_next(records, 2) == [(f"confirm-{A.identity[:6]}-1", A)]


def test_confirming_ends() -> None:
    configs = [config(steps) for steps in range(1, 7)]
    records = [measured(f"t{i}", what, 1.0 + i / 10) for i, what in enumerate(configs)]
    done = 0
    while wanted := confirmed_next(records):
        records.append(measured(wanted[0][0], wanted[0][1], 9.0, "confirm"))
        done += 1
    assert done == MAX_CONFIRMED


def test_after_a_difference_beyond_noise_every_trial_is_launched() -> None:
    """A switched server is half as fast as a fresh one of the same setting, and two settings show it."""
    store, said = _Store(), list[str]()
    legal = LegalSpace(SMALL, resolve)
    ledger = Ledger()
    watch = SwitchWatch(store, said.append)

    def run(job: TrialJob) -> TrialOutcome:
        made = outcome(job, seconds=2.0 if job.fresh else 4.0, switched=not job.fresh)
        store.observed[job.trial_id] = made.cells
        return made

    pool = InstantPool(run=run)
    study = MemoryStudy(legal, ledger)
    study.add(setting(steps=1, tokens=2))
    study.add(setting(steps=2, tokens=2))
    SweepLoop(
        study=study,
        store=store,
        pool=pool,
        legal=legal,
        ledger=ledger,
        plan=LoopPlan(
            workload=WORKLOAD,
            objective=Objective(),
            fixed=(check_trial(legal, setting(steps=1, tokens=2)), check_trial(legal, setting(steps=2, tokens=2))),
            budget=Budget(),
            repeats=1,
            retries=0,
        ),
        observer=watch,
        stop=StopRequest(),
        heartbeat=lambda: None,
        must_launch=lambda: watch.distrusted,
    ).run()
    assert [job.fresh for job in pool.launched] == [True, True, False, False, *[True] * 4]
    assert len(said) == 2
    assert said[0].startswith(
        "servers are not switched any more: layout 0,3,7 (1,1,2) tp 1: throughput differs by +100"
    )
    # the next driver knows it from the records
    assert SwitchWatch(store, said.append).distrusted


class _Store(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.observed: dict[str, tuple[CellObservation, ...]] = {}

    def rows(self, trial_id: str) -> Any:
        return rows_by_cell(self.observed[trial_id])
