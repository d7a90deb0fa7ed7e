"""GPU groups on Ray: each one an actor in a placement group of its own. Ray's failures come back as values."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from actors.background import InBackground
from actors.gpu_group import DeviceGrant, EngineFactory, GpuGroup
from actors.group_pool import Group, GroupRequest
from actors.job import TrialJob, TrialOutcome
from actors.placement import Node
from actors.ray_errors import cause_line, one_line
from actors.trace_transfer import TraceFolder, fetch, is_here
from results.failures import Failure
from results.trace_segments import TracedFiles
from search_spaces.errors import EnvironmentProblem

logger = logging.getLogger(__name__)

LOG_TIMEOUT_S = 20.0
"""How long the driver waits for the log of a lost group: a worker has to start for it."""

ENDING_POLL_S = 0.2

CONTROL = "control"
"""The concurrency group in which `stop` runs while `run` is busy."""


class RayCluster:
    """A connection to Ray. `shutdown` ends it, and a Ray of our own with it."""

    def nodes(self) -> tuple[Node, ...]:
        import ray

        return tuple(
            Node(
                node_id=node["NodeID"],
                cpus=node["Resources"].get("CPU", 0.0),
                gpus=node["Resources"].get("GPU", 0.0),
            )
            for node in ray.nodes()
            if node["Alive"]
        )

    def open_group(self, request: GroupRequest) -> RayGroup:
        return RayGroup(self, request)

    def wait(self, groups: Sequence[Group], timeout_s: float) -> None:
        import ray

        ours = [group for group in groups if isinstance(group, RayGroup)]
        refs = [group.pending for group in ours if group.pending is not None]
        endings = [group.ending for group in ours if group.ending is not None]
        until_s = time.monotonic() + timeout_s
        while endings and (left_s := until_s - time.monotonic()) > 0:
            step_s = min(left_s, ENDING_POLL_S)
            if refs and ray.wait(refs, num_returns=1, timeout=0)[0]:
                return
            if endings[0].wait(step_s) or any(ending.wait(0) for ending in endings):
                return
        if refs and not endings:
            ray.wait(refs, num_returns=1, timeout=timeout_s)

    def shutdown(self) -> None:
        """Idempotent."""
        import ray

        ray.shutdown()


class RayGroup:
    """One GPU group: an actor alone in a placement group of one bundle. Both end with `close`.

    The actor never restarts by itself: a restarted one would meet its predecessor's server.
    """

    def __init__(self, cluster: RayCluster, request: GroupRequest) -> None:
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = request.bundle
        self._cluster, self._factory = cluster, request.factory
        self._placement = placement_group([bundle.resources], strategy="STRICT_PACK")
        actor_class = ray.remote(concurrency_groups={CONTROL: 1}, max_restarts=0, max_task_retries=0)(GpuGroup)
        self._actor: Any = actor_class.options(
            num_cpus=bundle.cpus,
            num_gpus=bundle.gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._placement, placement_group_bundle_index=0),
        ).remote(request.factory, request.slot, request.tp_size, request.device)
        self._grant_ref: Any = self._actor.grant.options(concurrency_group=CONTROL).remote()
        self._grant: DeviceGrant | None = None
        self._run_ref: Any = None
        self._ending: InBackground[TrialOutcome | Failure] | None = None
        self._closed = False
        self._traces = TraceFolder()

    @property
    def pending(self) -> Any:
        """What to wait for: the reference of the running trial, None when idle or when the trial has ended."""
        return None if self._ending is not None else self._run_ref

    @property
    def ending(self) -> InBackground[TrialOutcome | Failure] | None:
        """What is still to be had of a trial that has ended; None when there is nothing."""
        return self._ending

    def start(self, job: TrialJob) -> None:
        self._run_ref = self._actor.run.remote(job)

    def grant(self) -> DeviceGrant | None:
        import ray

        if self._grant is None and ray.wait([self._grant_ref], timeout=0)[0]:
            # an actor that died has no grant; `take` tells of its death
            with contextlib.suppress(ray.exceptions.RayError):
                self._grant = ray.get(self._grant_ref)
                logger.info("group holds GPUs %s on node %s", self._grant.device_ids, self._grant.node_id)
        return self._grant

    def take(self) -> TrialOutcome | Failure | None:
        if self._ending is None:
            taken = self._taken()
            if not isinstance(taken, InBackground):
                return taken
            self._ending = taken
        if not self._ending.wait(0):
            return None
        ending, self._ending = self._ending, None
        return ending.result()

    def _taken(self) -> TrialOutcome | Failure | InBackground[TrialOutcome | Failure] | None:
        """What `take` returns, or how it is being had: a trace may be large, and a lost group's log far away."""
        import ray

        if not ray.wait([self._run_ref], timeout=0)[0]:
            return None
        try:
            outcome: TrialOutcome = ray.get(self._run_ref)
        except ray.exceptions.RayTaskError as error:
            return Failure(phase="launch", kind="lost_actor", message=f"the group's actor raised: {cause_line(error)}")
        except ray.exceptions.RayError as error:
            return InBackground(partial(self._death, error))
        self._run_ref = None
        if outcome.traced is None or is_here(outcome.traced):
            return outcome
        return InBackground(partial(self._with_its_files, outcome, outcome.traced))

    def _with_its_files(self, outcome: TrialOutcome, traced: TracedFiles) -> TrialOutcome | Failure:
        """The outcome with the files of its trace within reach; they stay until the next one is taken."""
        import ray

        def read(name: str, offset: int, size: int) -> bytes:
            if self._closed:
                raise EOFError("the group was closed")
            # a copy: the bytes that Ray gives lie in its object store and hold their place there
            return bytes(ray.get(self._actor.trace_piece.remote(name, offset, size)))

        try:
            return replace(outcome, traced=fetch(traced, read, self._traces.renew()))
        except ray.exceptions.RayTaskError as error:
            return Failure(phase="launch", kind="lost_actor", message=f"the group's actor raised: {cause_line(error)}")
        except ray.exceptions.RayError as error:
            return self._death(error)
        except (OSError, EOFError) as error:
            raise EnvironmentProblem(f"the trace cannot be fetched: {one_line(error)}") from None

    def close(self, timeout_s: float) -> None:
        import ray
        from ray.util.placement_group import remove_placement_group

        if self._closed:
            return
        self._closed = True
        try:
            ray.get(self._actor.stop.options(concurrency_group=CONTROL).remote(), timeout=timeout_s)
        except ray.exceptions.RayError as error:
            logger.debug("group did not stop by itself: %s", one_line(error))
        finally:
            ray.kill(self._actor)
            remove_placement_group(self._placement)
            if self._ending is not None:
                self._ending.wait(timeout_s)  # no piece comes any more
            self._traces.clear()

    def _death(self, error: Exception) -> Failure:
        if getattr(error, "actor_init_failed", False):
            # such as a package that the node lacks: no further trial would fare better
            message = f"the group's actor cannot be made on its node: {one_line(error)}"
            return Failure(phase="placement", kind="no_engine", message=message)
        node_id = self._grant.node_id if self._grant is not None else None
        if node_id is not None and node_id not in {node.node_id for node in self._cluster.nodes()}:
            return Failure(phase="measure", kind="lost_node", message=f"node {node_id[:12]} left the cluster")
        message = f"the group's actor died: {one_line(error)}"
        return Failure(phase="measure", kind="lost_actor", message=message, log_tail=self._last_log())

    def _last_log(self) -> str:
        """What the lost actor's server wrote last, read on its node; empty when that cannot be had soon."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self._grant is None:
            return ""
        there = NodeAffinitySchedulingStrategy(self._grant.node_id, soft=False)
        read = ray.remote(num_cpus=0, max_retries=0)(read_last_log).options(scheduling_strategy=there)
        try:
            return str(ray.get(read.remote(self._factory, self._grant), timeout=LOG_TIMEOUT_S))
        except ray.exceptions.RayError as error:
            logger.info("no log of a lost group: %s", one_line(error))
            return ""


def read_last_log(factory: EngineFactory, grant: DeviceGrant) -> str:
    """Runs as a task on the node of a lost group."""
    return factory.last_log(grant)
