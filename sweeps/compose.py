"""Where concrete classes meet: a spec and a study's folder become a running sweep."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.engine_factories import SglangFactory
from actors.engines.preflight import FoundEngine, find_engine
from actors.engines.server_spec import ServerSpec
from actors.group_pool import GroupPool
from actors.placement import Device
from actors.ray_cluster import ClusterAddress, RayCluster, connect
from results.objective import Objective
from results.store import StudyFolder
from search_spaces.config import Triple
from search_spaces.errors import EnvironmentProblem
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import first_settings, fixed_trials
from sweeps.budget import Budget
from sweeps.endpoint_study import adopted, endpoint_factory
from sweeps.engine_check import refusals
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest, stop_signals
from sweeps.lease import Owner, StorageLease, hold_folder
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import LoopPlan, Reason, SweepLoop
from sweeps.observers import Observer, Observers
from sweeps.planning import SweepPlan, make_plan
from sweeps.progress import Standing
from sweeps.session import Recovered, recover
from sweeps.spec_schema import SweepSpec
from sweeps.study import SearchStudy, open_study
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
    # Ray takes seconds to start and MLflow to make its store: what is missing is said before
    if spec.engine.kind == "sglang":
        find_engine(spec.engine.python or sys.executable, "cpu" if spec.engine.device == "cpu" else "cuda")
    folder = StudyFolder(place.folder)
    folder.path.mkdir(parents=True, exist_ok=True)
    with hold_folder(folder.lock_path) as owner:
        folder.open_for_write()
        records = folder.records()
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
        with _lease(study, owner) as lease, _groups(spec, plan, place, legal, ledger) as pool:
            view = _view(spec, place, folder)
            recovered = recover(study, records, objective, retries=spec.budget.retries)
            for label, setting in first_settings(legal, plan.suspect_setting):
                study.enqueue(setting, role="suspect" if label == "suspect" else "search", label=label)
            with stop_signals() as stop, _stopping(pool, stop):
                loop = SweepLoop(
                    study=study,
                    store=folder,
                    pool=pool,
                    legal=legal,
                    ledger=ledger,
                    plan=LoopPlan(
                        workload=workload,
                        objective=objective,
                        fixed=fixed_trials(
                            plan,
                            legal,
                            repeats=spec.budget.baselines,
                            expected_trials=min(spec.budget.trials or legal.size, legal.size * spec.budget.repeats),
                        ),
                        budget=Budget(
                            trials=spec.budget.trials,
                            launches=spec.budget.launches,
                            wall_time_s=spec.budget.wall_time_s,
                        ),
                        repeats=spec.budget.repeats,
                        retries=spec.budget.retries,
                        confirmations=spec.budget.confirmations,
                    ),
                    observer=Observers([*view, observer]),
                    stop=stop,
                    heartbeat=lease.beat,
                )
                reason = loop.run()
            best = study.best
            return SweepResult(
                reason=reason,
                standing=loop.standing(),
                recovered=recovered,
                best=None if best is None else str(best.attrs.get("trial_id") or best.attrs.get("answered_from")),
                best_value=None if best is None else best.value,
            )


def _identity(spec: SweepSpec, workload_id: str) -> dict[str, Any]:
    """What a study is about beyond its space and direction: with another of these its trials cannot be compared."""
    return {
        "target": spec.target,
        "draft": spec.draft,
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


@contextlib.contextmanager
def _groups(
    spec: SweepSpec, plan: SweepPlan, place: StudyPlace, legal: LegalSpace, ledger: Ledger
) -> Iterator[GroupPool]:
    """Groups on the cluster of the spec, after the engine was asked about what they are to run.

    EnvironmentProblem when the cluster cannot hold every TP size of the plan, or there is no SGLang.
    """
    wanted = {group.effective.tp_size for group in plan.servers.groups}
    wanted |= {baseline.tp_size for baseline in (*plan.servers.baselines, *plan.extra_baselines)}
    # slots of a CPU machine are logical: the user may ask for more of them than it has cores
    slots = max(len(os.sched_getaffinity(0)), spec.cluster.gpus or 1)
    gpus = 0 if spec.engine.device == "cpu" else None
    cluster = connect(ClusterAddress(address=spec.cluster.address, cpus=slots, gpus=gpus))
    try:
        device = _device(spec, cluster)
        factory = endpoint_factory(spec) or _sglang_factory(spec, plan, place, device, legal=legal, ledger=ledger)
        pool = GroupPool(
            cluster,
            factory,
            device,
            max_parallel=spec.cluster.max_parallel,
            max_devices=spec.cluster.gpus,
        )
        lack = pool.lack(wanted)
        if lack is not None:
            raise EnvironmentProblem(f"cluster: {lack}")
        try:
            yield pool
        finally:
            pool.close()
    finally:
        cluster.shutdown()


def _sglang_factory(
    spec: SweepSpec, plan: SweepPlan, place: StudyPlace, device: Device, *, legal: LegalSpace, ledger: Ledger
) -> SglangFactory:
    """For servers of our own; what SGLang says it would not run is put into the ledger."""
    found = find_engine(spec.engine.python or sys.executable, device)
    server = _server_spec(spec, plan, place, device, found)
    for config, reason in refusals(found, server, [it for it in legal.configs if ledger.is_open(it)]).items():
        ledger.refuse(config, reason)
    return SglangFactory(
        server=server,
        pools=_pools(spec, plan, device),
        graph_batch_sizes=spec.workload.concurrency if device == "cuda" else None,
    )


@contextlib.contextmanager
def _stopping(pool: GroupPool, stop: StopRequest) -> Iterator[None]:
    """Close the groups while signals are still caught, quickly when one came: `ray job stop` waits for 3 s only."""
    try:
        yield
    finally:
        pool.close(interrupt=stop.requested)


def _device(spec: SweepSpec, cluster: RayCluster) -> Device:
    has_gpus = any(node.gpus for node in cluster.nodes())
    if spec.engine.device == "cuda" and not has_gpus:
        raise EnvironmentProblem("engine.device: cuda was asked for but the cluster has no GPU; legal here: cpu, auto")
    return "cuda" if has_gpus and spec.engine.device != "cpu" else "cpu"


def _pools(spec: SweepSpec, plan: SweepPlan, device: Device) -> Triple | None:
    """The largest triple of the plan, for servers that are switched; None when every trial is a launch."""
    if spec.engine.switching == "off" or (spec.engine.switching == "auto" and device == "cuda"):
        return None
    triples = [group.effective.triple for group in plan.servers.groups if group.effective.triple is not None]
    return Triple(
        num_steps=max(triple.num_steps for triple in triples),
        eagle_topk=max(triple.eagle_topk for triple in triples),
        num_draft_tokens=max(triple.num_draft_tokens for triple in triples),
    )


def _server_spec(spec: SweepSpec, plan: SweepPlan, place: StudyPlace, device: Device, found: FoundEngine) -> ServerSpec:
    engine = spec.engine
    digest = hashlib.sha256(str(place.folder).encode()).hexdigest()[:8]
    return ServerSpec(
        target=plan.context.target,
        draft=plan.context.draft,
        sglang_version=found.version,
        device=device,
        work_dir=Path(),
        sweep_id=f"{spec.study}-{digest}",
        slot="",
        python=found.python,
        args=engine.args,
        environment=engine.env,
        stand_ins=found.stand_ins,
        host=engine.host,
        port=engine.port,
        start_method=engine.start_method,
        ready_timeout_s=engine.ready_timeout_s,
        stop_grace_s=engine.stop_grace_s,
        allow_simulated=engine.allow_simulated,
    )


def _view(spec: SweepSpec, place: StudyPlace, folder: StudyFolder) -> list[Observer]:
    """The MLflow view, brought up to the records; none when tracking is off."""
    if not spec.tracking.enabled:
        return []
    from results.mlflow_view import MlflowView
    from sweeps.mlflow_observer import MlflowObserver

    view = MlflowView.open_or_fail(
        place.tracking_uri(spec),
        folder,
        study=spec.study,
        experiment=spec.tracking.experiment,
        artifact_root=place.home / "mlflow-artifacts",
    )
    records = folder.records()
    view.close_dead_runs()
    if records:
        view.sync(records)
    return [MlflowObserver(view, lambda: records)]
