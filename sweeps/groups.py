"""The GPU groups of a study: the cluster its spec names, and servers as the spec wants them started."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from actors.cluster_address import ClusterAddress
from actors.engine_factories import SglangFactory
from actors.engines.devices import has_gpu
from actors.engines.environment import find_poison
from actors.engines.preflight import FoundEngine, find_engine
from actors.engines.server_spec import ServerSpec
from actors.gpu_group import EngineFactory
from actors.group_pool import GroupPool
from actors.placement import Device
from actors.ray_cluster import RayCluster
from actors.ray_connection import check_listens, connect
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import EnvironmentProblem
from search_spaces.rulings import RuleContext
from sweeps.endpoint_study import endpoint_factory
from sweeps.groups_on_demand import GroupsOnDemand
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest
from sweeps.planning import SweepPlan
from sweeps.spec_schema import SweepSpec
from sweeps.switching import switches


def servers_of(plan: SweepPlan) -> tuple[EngineConfig, ...]:
    """Every configuration that a sweep may start, baselines included."""
    groups = tuple(group.effective for group in plan.servers.groups)
    return (*groups, *plan.servers.baselines, *plan.extra_baselines)


def check_environment(spec: SweepSpec) -> FoundEngine | None:
    """What can be told within a second or two, before any Ray: EnvironmentProblem when nothing listens at the cluster's
    address, when a Ray of our own would need a GPU that is missing or pass on a variable under which nothing is to be
    measured, or when SGLang is missing. The engine found; None when the spec names a server that runs already."""
    address = ClusterAddress(address=spec.cluster.address)
    check_listens(address)
    ours = address.resolve(os.environ) is None
    if spec.engine.device == "cuda" and ours and not has_gpu():
        raise EnvironmentProblem("engine.device: cuda was asked for but this machine has no GPU; legal here: cpu, auto")
    if spec.engine.kind != "sglang":
        return None
    poison = find_poison(os.environ) if ours else None
    if poison is not None:
        raise EnvironmentProblem(poison)
    return find_engine(spec.engine.python or sys.executable)


def sweep_id(study: str, folder: Path) -> str:
    """What the processes of a study's servers are marked with: two folders' never share it."""
    return f"{study}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


@contextlib.contextmanager
def open_groups(
    spec: SweepSpec,
    context: RuleContext,
    place: StudyPlace,
    servers: Sequence[EngineConfig],
    *,
    found: FoundEngine | None = None,
    before: Callable[[FoundEngine, ServerSpec], None] | None = None,
) -> Iterator[GroupPool]:
    """Groups on the cluster of the spec, for servers of these configurations.

    `found` is what `check_environment` returned, if it was asked already. `before` is told how servers of our own will
    be started, before any is. EnvironmentProblem when the cluster cannot hold every TP size among them, or there is no
    SGLang.
    """
    if found is None:
        found = check_environment(spec)
    # slots of a CPU machine are logical: the user may ask for more of them than it has cores
    slots = max(len(os.sched_getaffinity(0)), spec.cluster.gpus or 1)
    gpus = 0 if spec.engine.device == "cpu" else None
    cluster = connect(ClusterAddress(address=spec.cluster.address, cpus=slots, gpus=gpus))
    try:
        device = _device(spec, cluster)
        factory: EngineFactory | None = endpoint_factory(spec)
        if found is not None:
            server = _server_spec(spec, context, place, device, found)
            if before is not None:
                before(found, server)
            factory = _sglang_factory(spec, server, servers)
        assert factory is not None
        pool = GroupPool(
            cluster,
            factory,
            device,
            max_parallel=spec.cluster.max_parallel,
            max_devices=spec.cluster.gpus,
        )
        lack = pool.lack({server.tp_size for server in servers})
        if lack is not None:
            raise EnvironmentProblem(f"cluster: {lack}")
        try:
            yield pool
        finally:
            pool.close()
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def stopping(pool: GroupPool | GroupsOnDemand, stop: StopRequest) -> Iterator[None]:
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


def _room(servers: Sequence[EngineConfig]) -> Triple | None:
    """The largest triple among the servers; None without speculation."""
    triples = [server.triple for server in servers if server.triple is not None]
    if not triples:
        return None
    return Triple(
        num_steps=max(triple.num_steps for triple in triples),
        eagle_topk=max(triple.eagle_topk for triple in triples),
        num_draft_tokens=max(triple.num_draft_tokens for triple in triples),
    )


def _sglang_factory(spec: SweepSpec, server: ServerSpec, servers: Sequence[EngineConfig]) -> SglangFactory:
    room = _room(servers)
    return SglangFactory(
        server=server,
        pools=room if switches(spec, server.device) else None,
        room=room,
        triples=tuple(sorted({server.triple for server in servers if server.triple is not None})),
        graph_batch_sizes=graph_batch_sizes(spec, server.device),
    )


def graph_batch_sizes(spec: SweepSpec, device: Device) -> tuple[int, ...] | None:
    """What a switched server captures CUDA graphs for: what is measured. None is SGLang's own choice, as in a launch:
    an open loop has no largest batch, and one beyond the graphs would run without."""
    return spec.workload.concurrency if device == "cuda" and not spec.workload.request_rate else None


def _server_spec(
    spec: SweepSpec, context: RuleContext, place: StudyPlace, device: Device, found: FoundEngine
) -> ServerSpec:
    engine = spec.engine
    return ServerSpec(
        target=context.target,
        draft=context.draft,
        sglang_version=found.version,
        device=device,
        work_dir=Path(),
        sweep_id=sweep_id(spec.study, place.folder),
        slot="",
        python=found.python,
        args=engine.args,
        environment=engine.env,
        stand_ins=found.stand_ins(device),
        host=engine.host,
        port=engine.port,
        start_method=engine.start_method,
        ready_timeout_s=engine.ready_timeout_s,
        stop_grace_s=engine.stop_grace_s,
        allow_simulated=engine.allow_simulated,
    )
