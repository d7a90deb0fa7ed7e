"""Ray: connecting within a bounded time, and GPU groups as actors in placement groups. The one seam to it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from actors.background import InBackground
from actors.cluster_address import ClusterAddress
from actors.gpu_group import DeviceGrant, EngineFactory, GpuGroup
from actors.group_pool import Group, GroupRequest
from actors.job import TrialJob, TrialOutcome
from actors.placement import Node
from actors.trace_transfer import TraceFolder, fetch, is_here
from results.failures import Failure
from results.trace_segments import TracedFiles
from search_spaces.errors import EnvironmentProblem

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 100 * 2**20
"""Jobs and outcomes are small; Ray's own default reserves a third of the memory."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

LOG_TIMEOUT_S = 20.0
"""How long the driver waits for the log of a lost group: a worker has to start for it."""

ENDING_POLL_S = 0.2

CONTROL = "control"
"""The concurrency group in which `stop` runs while `run` is busy."""


def connect(where: ClusterAddress) -> RayCluster:
    """Connect to a cluster or start one.

    EnvironmentProblem when the address does not answer within `connect_timeout_s`. A Ray of our own listens on the
    machine's address, so it gets a random token unless the user has set RAY_AUTH_MODE; the token is never written.
    """
    address = where.resolve(os.environ)
    # Ray would else copy a whole `uv run` environment into every worker
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # Ray runs workers at niceness 15, which their servers inherit: a CPU server would be measured below its speed
    os.environ.setdefault("RAY_worker_niceness", "0")
    if address is None:
        _choose_authentication()
    else:
        check_listens(where)
        _check_alive(address, where.connect_timeout_s)
    import ray

    options: dict[str, Any] = {"logging_level": "WARNING", "log_to_driver": False, "configure_logging": False}
    if address is None:
        options |= {
            "num_cpus": where.cpus,
            "num_gpus": where.gpus,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    try:
        with _keeping_handler(signal.SIGTERM):
            ray.init(address=address or "local", **options)
    except SystemExit as error:
        # ray.init ends the process of its own accord when the address answers but is no Ray
        raise EnvironmentProblem(f"cluster.address: {address or 'local'}: Ray gave up connecting ({error})") from None
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise EnvironmentProblem(f"cluster.address: {address or 'local'}: {_one_line(error)}") from None
    return RayCluster()


@contextlib.contextmanager
def _keeping_handler(number: signal.Signals) -> Iterator[None]:
    """Put the caller's handler back, if there is one: `ray.init` sets its own for SIGTERM, which ends the process
    before a sweep can give back what it began."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(number, before)


def _choose_authentication() -> None:
    """Read by Ray's core when it is imported; later changes have no effect."""
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def check_listens(where: ClusterAddress) -> None:
    """EnvironmentProblem when nobody accepts a connection at the address. Ray itself would take half a minute to tell.

    Nothing is checked where there is no HOST:PORT to connect to.
    """
    address = where.resolve(os.environ)
    host, colon, port = (address or "").rpartition(":")
    if "/" in host or not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=where.listen_timeout_s).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or f"no answer within {where.listen_timeout_s:g} s"
        raise EnvironmentProblem(f"cluster.address: {address}: no Ray listens there: {reason}") from None


def _check_alive(address: str, timeout_s: float) -> None:
    """Ask in a process of its own: `ray.init` on a dead address takes minutes and then ends the process it is in."""
    if address.startswith("ray://"):
        raise EnvironmentProblem(
            f"cluster.address: {address}: Ray Client is not supported; use `specsweep submit`, or HOST:PORT of the head"
        )
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    command += [] if address == "auto" else ["--address", address]
    # without an address of its own the check would take RAY_ADDRESS, which may itself say "auto"
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS" or v != "auto"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(f"cluster.address: {address}: no Ray answers within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"health check exit code {done.returncode}"
        raise EnvironmentProblem(f"cluster.address: {address}: no Ray answers: {reason}")


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
            return Failure(phase="launch", kind="lost_actor", message=f"the group's actor raised: {_cause(error)}")
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
            return Failure(phase="launch", kind="lost_actor", message=f"the group's actor raised: {_cause(error)}")
        except ray.exceptions.RayError as error:
            return self._death(error)
        except (OSError, EOFError) as error:
            raise EnvironmentProblem(f"the trace cannot be fetched: {_one_line(error)}") from None

    def close(self, timeout_s: float) -> None:
        import ray
        from ray.util.placement_group import remove_placement_group

        if self._closed:
            return
        self._closed = True
        try:
            ray.get(self._actor.stop.options(concurrency_group=CONTROL).remote(), timeout=timeout_s)
        except ray.exceptions.RayError as error:
            logger.debug("group did not stop by itself: %s", _one_line(error))
        finally:
            ray.kill(self._actor)
            remove_placement_group(self._placement)
            if self._ending is not None:
                self._ending.wait(timeout_s)  # no piece comes any more
            self._traces.clear()

    def _death(self, error: Exception) -> Failure:
        if getattr(error, "actor_init_failed", False):
            # such as a package that the node lacks: no further trial would fare better
            message = f"the group's actor cannot be made on its node: {_one_line(error)}"
            return Failure(phase="placement", kind="no_engine", message=message)
        node_id = self._grant.node_id if self._grant is not None else None
        if node_id is not None and node_id not in {node.node_id for node in self._cluster.nodes()}:
            return Failure(phase="measure", kind="lost_node", message=f"node {node_id[:12]} left the cluster")
        message = f"the group's actor died: {_one_line(error)}"
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
            logger.info("no log of a lost group: %s", _one_line(error))
            return ""


def read_last_log(factory: EngineFactory, grant: DeviceGrant) -> str:
    """Runs as a task on the node of a lost group."""
    return factory.last_log(grant)


def _cause(error: Any) -> str:
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {_one_line(cause)}"


def _one_line(error: BaseException | str) -> str:
    words = _COLOUR.sub("", str(error)).split()
    return (" ".join(words) or type(error).__name__)[:400]
