"""What runs before a search by surface is known to the search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from search_doubles import SMALL, Events, InstantPool, resolve, setting, study_in
from trial_builders import WORKLOAD, baseline, config

from results.objective import Objective
from results.store import StudyFolder
from search_spaces.rulings import RuleContext
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan
from sweeps.opening import Opening, opening_trials
from sweeps.study import SearchStudy
from sweeps.surface_search import SurfaceSearch
from sweeps.tasks import FixedTrial
from sweeps.trace_plans import PlannedTrace
from sweeps.tracing import TraceRun


def opening(tmp_path: Path, pool: InstantPool, study: SearchStudy, ledger: Ledger, **changes: Any) -> Opening:
    store = StudyFolder(tmp_path)
    store.open_for_write()
    options: dict[str, Any] = {
        "study": study,
        "store": store,
        "pool": pool,
        "ledger": ledger,
        "workload": WORKLOAD,
        "objective": Objective(),
        "context": cast("RuleContext", None),
        "budget": Budget(),
        "retries": 0,
        "observer": Events(),
        "stop": StopRequest(),
        "heartbeat": lambda: None,
    }
    return Opening(**(options | changes))


def test_what_the_opening_launched_is_not_launched_by_the_search(tmp_path: Path) -> None:
    """The suspect, asked for by words that the space does not hold, is one of its servers."""
    ledger, pool, stop = Ledger(), InstantPool(), StopRequest()
    study = study_in(tmp_path, ledger, SMALL)
    fixed = (
        FixedTrial(base="baseline-tp1", role="baseline", setting=None, config=baseline()),
        FixedTrial(base="suspect-1", role="suspect", setting=setting(steps=1, tokens=16), config=config(1)),
    )
    opening(tmp_path, pool, study, ledger).measure(fixed)
    assert [job.trial_id for job in pool.launched] == ["baseline-tp1-a1", "suspect-1-a1"]
    assert not ledger.is_open(config(1))
    assert ledger.last_tp_size == 1
    plan = LoopPlan(workload=WORKLOAD, objective=Objective(), fixed=fixed, budget=Budget(), repeats=1, retries=0)
    loop = SweepLoop(
        study=study,
        store=StudyFolder(tmp_path),
        pool=pool,
        legal=LegalSpace(SMALL, resolve),
        ledger=ledger,
        plan=plan,
        observer=Events(),
        stop=stop,
        heartbeat=lambda: None,
    )
    assert loop.run() == "exhausted"
    launched = [job.config for job in pool.launched]
    assert len(launched) == len(set(launched)) == 1 + 6


@pytest.mark.parametrize("distrusted", [False, True])
def test_where_switching_is_distrusted_the_opening_launches_too(tmp_path: Path, distrusted: bool) -> None:
    ledger, pool = Ledger(), InstantPool()
    suspect = FixedTrial(base="suspect-1", role="suspect", setting=setting(steps=1), config=config(1))
    study = study_in(tmp_path, ledger, SMALL)
    opening(tmp_path, pool, study, ledger, must_launch=lambda: distrusted).measure([suspect])
    assert [job.fresh for job in pool.launched] == [distrusted]


@pytest.mark.parametrize(
    ("budget", "stopped"), [(Budget(launches=1), True), (Budget(wall_time_s=0.0), True), (Budget(launches=2), False)]
)
def test_a_spent_budget_is_no_trace_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: Budget, stopped: bool
) -> None:
    """The baseline takes the only launch: the next driver, with more of it, traces."""
    monkeypatch.setattr("sweeps.opening.trace_configs", lambda configs, *_: configs)
    ledger, pool, begun = Ledger(), InstantPool(), list[str]()

    def run_traces(plans: Any, *, may_begin: Any, heartbeat: Any, **_: Any) -> TraceRun:
        heartbeat()
        # one launch is left, for the first job; what goes on with its server may
        assert (may_begin(0, True), may_begin(1, True), may_begin(1, False)) == (True, False, True)
        begun.append("traces")
        return TraceRun(traces=(), weight_loads=1, elapsed_s=1.0, stopped=False)

    monkeypatch.setattr("sweeps.opening.run_traces", run_traces)
    study = study_in(tmp_path, ledger, SMALL)
    changes: dict[str, Any] = {"context": SimpleNamespace(target=None), "heartbeat": lambda: begun.append("beat")}
    first = FixedTrial(base="baseline-tp1", role="baseline", setting=None, config=baseline())
    opening(tmp_path, pool, study, ledger).measure([first])
    traced = opening(tmp_path, pool, study, ledger, budget=budget, **changes).trace([config(2)])
    assert begun == ([] if stopped else ["beat", "traces"])
    assert traced.stopped is stopped
    search = SurfaceSearch(
        study, StudyFolder(tmp_path), LegalSpace(SMALL, resolve), ledger, batch=1, seed=3, stop_at_gain=None
    )
    search.begin(traced, ())
    assert search.notes.fallback == (None if stopped else "nothing could be traced")


def test_what_is_traced_already_is_whole_whatever_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.opening.trace_configs", lambda configs, *_: configs)
    monkeypatch.setattr("sweeps.opening.plan_traces", lambda *_: [PlannedTrace(config=config(2), left=(), done=2)])
    ledger = Ledger()
    study = study_in(tmp_path, ledger, SMALL)
    traced = opening(tmp_path, InstantPool(), study, ledger, budget=Budget(launches=0)).trace([config(2)])
    assert not traced.stopped
    assert [trace.prompts for trace in traced.traces] == [2]


def test_a_suspect_waits_for_the_traces() -> None:
    """Launches go to the baseline, the check and traces first, as the plan says."""
    first = FixedTrial(base="baseline-tp1", role="baseline", setting=None, config=baseline())
    later = replace(first, base="baseline-tp1-2", due_after=4)
    large = replace(first, base="baseline-tp2", config=replace(baseline(), tp_size=2))
    check = FixedTrial(base="check", role="check", setting=setting(), config=config(3))
    suspect = FixedTrial(base="suspect-1", role="suspect", setting=setting(steps=5, tokens=6), config=config(5))
    assert opening_trials([first, large, later, check, suspect], 1) == [first, check]
