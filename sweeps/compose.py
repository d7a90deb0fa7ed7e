"""Where concrete classes meet: a spec and a study's folder become a running sweep."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from actors.engines.preflight import FoundEngine
from actors.engines.server_spec import ServerSpec
from results.mlflow_connection import check_reachable
from results.objective import Objective
from results.store import StudyFolder
from search_spaces.checkpoint_identity import checkpoint_identity
from search_spaces.config import Setting
from search_spaces.errors import InputError
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import both_ways, first_settings, fixed_trials
from sweeps.budget import Budget
from sweeps.endpoint_study import adopted
from sweeps.engine_check import refusals
from sweeps.groups import check_environment, known_device, open_groups, servers_of, stopping, switches
from sweeps.groups_on_demand import GroupsOnDemand
from sweeps.home import StudyPlace
from sweeps.interrupts import stop_signals
from sweeps.isolating import isolate_after_sweep
from sweeps.lease import Owner, StorageLease, hold_folder
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import LoopPlan, Reason, SweepLoop
from sweeps.observers import Observer, Observers
from sweeps.opening import Opening
from sweeps.planning import make_plan
from sweeps.progress import Standing
from sweeps.session import Recovered, recover
from sweeps.spec_schema import SweepSpec
from sweeps.study import SearchStudy, open_study
from sweeps.surface_search import SurfaceSearch, follows_surface, smallest_tp_size
from sweeps.switch_watch import SwitchWatch
from sweeps.tasks import FixedTrial
from sweeps.tracking import tracking_observers
from sweeps.workloads import make_workload

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """How one session of a sweep ended. `best` is the trial id of the study's best trial, with its value."""

    reason: Reason
    standing: Standing
    recovered: Recovered
    best: str | None
    best_value: float | None

    @property
    def interrupted(self) -> bool:
        return self.reason == "interrupted"


def run_sweep(spec: SweepSpec, place: StudyPlace, observer: Observer) -> SweepResult:
    """Run or resume the study of `spec` in `place` until nothing is left, the budget is spent, or a signal says stop.

    The same call begins a study and continues it exactly where its records end. Blocks; on return no server, actor or
    placement group of it is left, and a Ray of our own is gone. InputError and EnvironmentProblem before anything is
    launched when the spec, the study, SGLang, Ray or MLflow do not fit; later EnvironmentProblem only when the disk,
    the study's storage or the engine fail for every trial. KeyboardInterrupt when Ctrl-C is pressed twice.
    """
    spec = adopted(spec)
    plan = make_plan(spec)
    plan.servers.require_legal()
    workload = make_workload(spec)
    if spec.tracking.enabled and spec.tracking.uri is not None:
        check_reachable(spec.tracking.uri)
    folder = StudyFolder(place.folder)
    folder.path.mkdir(parents=True, exist_ok=True)
    with hold_folder(folder.lock_path) as owner:
        folder.open_for_write()
        records = folder.records()
        # Ray takes seconds to start and MLflow to make its store: what is missing is said before
        found = None if records else check_environment(spec)
        objective = Objective(
            metric=spec.objective.metric, concurrency=spec.objective_concurrency, goal=spec.objective.goal
        )
        ledger = Ledger(records, repeats=spec.budget.repeats)
        legal = LegalSpace(plan.space, RuleBook(plan.context).resolve)
        study = open_study(
            place.storage_url(spec),
            spec.study,
            legal=legal,
            ledger=ledger,
            direction=objective.direction,
            sampler=spec.search.sampler,
            seed=spec.search.seed,
            identity=_identity(spec, workload.workload_id),
            stays_on_tp=spec.engine.switching != "off",
        )

        def ask_engine(found: FoundEngine, server: ServerSpec) -> None:
            """What SGLang says it would not run is put into the ledger."""
            for config, reason in refusals(found, server, [it for it in legal.configs if ledger.is_open(it)]).items():
                ledger.refuse(config, reason)

        groups = GroupsOnDemand(
            open_groups(spec, plan.context, place, servers_of(plan), found=found, before=ask_engine)
        )
        with _lease(study, owner) as lease, groups as pool:
            if not records:
                pool.open()  # a cluster that does not serve leaves nothing in MLflow
            observers = Observers([*tracking_observers(spec, place, folder), observer])
            recovered = recover(study, records, objective, retries=spec.budget.retries)
            switching = switches(spec, known_device(spec, records) or pool.device)
            both = both_ways(legal, plan.suspect_setting) if switching else None
            _enqueue_first(study, legal, plan.suspect_setting, both)
            watch = SwitchWatch(folder, observers.said)
            fixed = fixed_trials(
                plan,
                legal,
                repeats=spec.budget.baselines,
                expected_trials=min(spec.budget.trials or legal.size, legal.size * spec.budget.repeats),
                both=both,
            )
            budget = Budget(
                trials=spec.budget.trials, launches=spec.budget.launches, wall_time_s=spec.budget.wall_time_s
            )
            with stop_signals() as stop, stopping(pool, stop):
                opening = Opening(
                    study=study,
                    store=folder,
                    pool=pool,
                    workload=workload,
                    objective=objective,
                    context=plan.context,
                    budget=budget,
                    retries=spec.budget.retries,
                    observer=observers,
                    stop=stop,
                    heartbeat=lease.beat,
                )
                surface = _surface(spec, opening, legal, fixed) if follows_surface(spec, switching) else None
                loop = SweepLoop(
                    study=study,
                    store=folder,
                    pool=pool,
                    legal=legal,
                    ledger=ledger,
                    plan=LoopPlan(
                        workload=workload,
                        objective=objective,
                        fixed=fixed,
                        budget=budget,
                        repeats=spec.budget.repeats,
                        retries=spec.budget.retries,
                        confirmations=spec.budget.confirmations,
                        launches_before=0 if surface is None else surface.notes.weight_loads,
                    ),
                    observer=Observers([*([] if surface is None else [surface]), watch, observers]),
                    stop=stop,
                    heartbeat=lease.beat,
                    enough=surface.enough if surface is not None else lambda: False,
                    must_launch=lambda: watch.distrusted,
                )
                reason = loop.run()
                if surface is not None:
                    surface.end(reason)
                if spec.isolate and spec.suspect is not None and reason != "interrupted":
                    may_launch = reason in ("exhausted", "trials", "gain") and spec.engine.kind == "sglang"
                    isolate_after_sweep(spec, place, pool, observers, stop, may_launch=may_launch)
            best = study.best
            return SweepResult(
                reason=reason,
                standing=loop.standing(),
                recovered=recovered,
                best=None if best is None else str(best.attrs.get("trial_id") or best.attrs.get("answered_from")),
                best_value=None if best is None else best.value,
            )


def _enqueue_first(study: SearchStudy, legal: LegalSpace, suspect: Setting | None, both: Setting | None) -> None:
    first = first_settings(legal, suspect)
    for label, setting in first:
        study.enqueue(setting, role="suspect" if label == "suspect" else "search", label=label)
    if both is not None and all(setting != both for _, setting in first):
        study.enqueue(both, role="search", label="both ways")


def _surface(spec: SweepSpec, opening: Opening, legal: LegalSpace, fixed: Sequence[FixedTrial]) -> SurfaceSearch | None:
    """What comes first at the smallest TP size, traces there, and the search that follows them."""
    surface = SurfaceSearch(
        opening.study,
        opening.store,
        legal,
        batch=spec.objective_concurrency,
        seed=spec.search.seed,
        stop_at_gain=spec.search.stop_at_gain,
        say=opening.observer.said,
    )
    smallest = smallest_tp_size(legal.configs)
    opening.measure([trial for trial in fixed if trial.due_after == 0 and trial.config.tp_size == smallest])
    if opening.stop.requested:
        return None
    try:
        traced = opening.trace(legal.configs)
    except InputError as problem:
        # a damaged trace, one of another device, or settings that cannot be traced: the search goes on without
        surface.fall_back(str(problem))
    else:
        surface.begin(traced, opening.store.records())
    return surface


def _identity(spec: SweepSpec, workload_id: str) -> dict[str, Any]:
    """What a study is about beyond its space and direction: with another of these its trials cannot be compared."""
    return {
        "target": checkpoint_identity(spec.target),
        "draft": checkpoint_identity(spec.draft),
        "workload": workload_id,
        "concurrency": list(spec.workload.concurrency),
        "objective.metric": spec.objective.metric,
        "objective.concurrency": spec.objective_concurrency,
        "engine.args": dict(sorted(spec.engine.args.items())),
    }


@contextlib.contextmanager
def _lease(study: SearchStudy, owner: Owner) -> Iterator[StorageLease]:
    lease = StorageLease(study, owner)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()
