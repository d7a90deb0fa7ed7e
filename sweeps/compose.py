"""Where concrete classes meet: a spec and a study's folder become a running sweep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from results.mlflow_connection import check_reachable
from results.store import StudyFolder
from search_spaces.errors import InputError
from sweeps.account import Account, trace_loads
from sweeps.baselines import both_ways
from sweeps.claiming import kept
from sweeps.driver_log import driver_log
from sweeps.endpoint_study import adopted
from sweeps.groups import check_environment, open_groups, servers_of, stopping
from sweeps.groups_on_demand import GroupsOnDemand
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest, stop_signals
from sweeps.isolating import isolate_after_sweep
from sweeps.lease import Owner, StorageLease, hold_folder
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan, Reason
from sweeps.observers import Observer, Observers
from sweeps.opened_study import OpenedStudy, open_for_sweep
from sweeps.opening import Opening, opening_trials
from sweeps.planning import make_plan
from sweeps.progress import Standing
from sweeps.session import Recovered, recover
from sweeps.spec_schema import SweepSpec
from sweeps.study import SearchStudy
from sweeps.surface_search import SurfaceSearch
from sweeps.switch_watch import SwitchWatch
from sweeps.switching import follows_surface, known_device, smallest_tp_size, switches
from sweeps.tasks import FixedTrial
from sweeps.tracking import tracking_observers
from sweeps.workloads import make_workload


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """How one session of a sweep ended. `best` is the trial id of the study's best trial."""

    reason: Reason
    standing: Standing
    recovered: Recovered
    best: str | None

    @property
    def interrupted(self) -> bool:
        return self.reason == "interrupted"


def run_sweep(spec: SweepSpec, place: StudyPlace, observer: Observer) -> SweepResult:
    """Run or resume the study of `spec` in `place` until nothing is left, the budget is spent, or a signal says stop.

    The same call begins a study and continues it exactly where its records end. The spec is kept in the study once
    nothing can refuse it any more; a new study that cannot begin leaves nothing. Blocks; on return no server, actor or
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
    with hold_folder(folder.lock_path) as owner, kept(place, spec) as keep_spec, driver_log(folder):
        folder.open_for_write()
        # Ray takes seconds to start and MLflow to make its store: what is missing is said before
        found = None if folder.records() else check_environment(spec)
        opened = open_for_sweep(spec, place, plan, workload, folder)
        groups = open_groups(spec, plan.context, place, servers_of(plan), found=found, before=opened.refuse)
        with _lease(opened.study, owner) as lease, GroupsOnDemand(groups, keep_spec) as pool:
            if not opened.records:
                pool.open()  # a cluster that does not serve leaves nothing in MLflow
            observers = Observers([*tracking_observers(spec, place, folder), observer])
            recovered = recover(opened.study, opened.records, opened.objective, retries=spec.budget.retries)
            with stop_signals() as stop, stopping(pool, stop):
                session = _Session(opened, pool, observers, stop, lease.beat)
                reason, standing = session.search()
                keep_spec()  # nothing may have been launched
                if not session.isolate(reason):
                    reason = "interrupted"
            best = opened.study.best
            return SweepResult(
                reason=reason,
                standing=standing,
                recovered=recovered,
                best=None if best is None else str(best.attrs.get("trial_id") or best.attrs.get("answered_from")),
            )


class _Session:
    """One driver's turn at an opened study, with signals caught and the lease held."""

    def __init__(
        self,
        opened: OpenedStudy,
        pool: GroupsOnDemand,
        observers: Observers,
        stop: StopRequest,
        heartbeat: Callable[[], None],
    ) -> None:
        self._opened, self._pool, self._observers = opened, pool, observers
        self._stop, self._heartbeat = stop, heartbeat

    def search(self) -> tuple[Reason, Standing]:
        """Baselines, traces when the search follows them, and the search itself."""
        opened, spec = self._opened, self._opened.spec
        switching = switches(spec, known_device(spec, opened.records) or self._pool.device)
        both = both_ways(opened.legal, opened.plan.suspect_setting) if switching else None
        opened.enqueue_first(both)
        fixed = opened.fixed_trials(both, switching=switching)
        watch = SwitchWatch(opened.folder, self._observers.said)

        def servers_switch() -> bool:
            return switching and not watch.distrusted

        opened.study.stay_on_tp(servers_switch)
        surface = self._follow_surface(fixed, watch, servers_switch) if follows_surface(spec, switching) else None
        loop = SweepLoop(
            study=opened.study,
            store=opened.folder,
            pool=self._pool,
            legal=opened.legal,
            ledger=opened.ledger,
            plan=LoopPlan(
                workload=opened.workload,
                objective=opened.objective,
                fixed=fixed,
                budget=opened.budget,
                repeats=spec.budget.repeats,
                retries=spec.budget.retries,
                confirmations=spec.budget.confirmations,
                launches_before=trace_loads(opened.folder),
            ),
            observer=Observers([*([] if surface is None else [surface]), watch, self._observers]),
            stop=self._stop,
            heartbeat=self._heartbeat,
            enough=surface.enough if surface is not None else lambda: False,
            must_launch=lambda: watch.distrusted,
        )
        reason = loop.run()
        if surface is not None:
            surface.end(reason)
        return reason, loop.standing()

    def isolate(self, reason: Reason) -> bool:
        """The verdict about the suspect, when the spec has one and the sweep was not interrupted. False when told to
        stop before it."""
        spec = self._opened.spec
        if not spec.isolate or spec.suspect is None or reason == "interrupted":
            return True
        may_launch = reason in ("exhausted", "trials", "gain") and spec.engine.kind == "sglang"
        return isolate_after_sweep(
            spec,
            self._opened.place,
            self._pool,
            self._observers,
            self._stop,
            may_launch=may_launch,
            account=Account(of=self._opened.study, budget=self._opened.budget, heartbeat=self._heartbeat),
        )

    def _follow_surface(
        self, fixed: Sequence[FixedTrial], watch: SwitchWatch, servers_switch: Callable[[], bool]
    ) -> SurfaceSearch | None:
        """What comes first at the smallest TP size, traces there, and the search that follows them."""
        opened, spec = self._opened, self._opened.spec
        opening = Opening(
            study=opened.study,
            store=opened.folder,
            pool=self._pool,
            ledger=opened.ledger,
            workload=opened.workload,
            objective=opened.objective,
            context=opened.plan.context,
            budget=opened.budget,
            retries=spec.budget.retries,
            observer=Observers([watch, self._observers]),
            stop=self._stop,
            heartbeat=self._heartbeat,
            must_launch=lambda: watch.distrusted,
        )
        surface = SurfaceSearch(
            opened.study,
            opened.folder,
            opened.legal,
            opened.ledger,
            batch=spec.objective_concurrency,
            seed=spec.search.seed,
            stop_at_gain=spec.search.stop_at_gain,
            switches=servers_switch,
            say=self._observers.said,
        )
        opening.measure(opening_trials(fixed, smallest_tp_size(opened.legal.configs)))
        if self._stop.requested:
            return None
        try:
            traced = opening.trace(opened.legal.configs)
        except InputError as problem:
            # a damaged trace, one of another device, or settings that cannot be traced: the search goes on without
            surface.fall_back(str(problem))
        else:
            surface.begin(traced, opened.folder.records())
        return surface


@contextlib.contextmanager
def _lease(study: SearchStudy, owner: Owner) -> Iterator[StorageLease]:
    lease = StorageLease(study, owner)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()
