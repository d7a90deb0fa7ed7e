"""The GPU group actor: the devices of one server and the engine that runs on them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from actors.engines.engine import Engine
from actors.job import TraceTask, TrialJob, TrialOutcome
from actors.outcomes import failed_outcome
from actors.placement import Device, device_problem
from actors.probing import ProbingEngine, can_probe, run_probe
from actors.trace_job import TraceableEngine, can_trace, run_trace
from actors.trace_transfer import TraceFolder
from actors.trial import HttpLoad, run_trial
from results.failures import Failure
from search_spaces.errors import EnvironmentProblem


@dataclass(frozen=True, kw_only=True)
class DeviceGrant:
    """What an actor really holds. `device_ids` are strings in Ray's order; empty on a machine without a GPU.

    `slot` names the group among the living ones of a sweep. A successor of a lost group gets its slot, and with it the
    right to end whatever that one left behind.
    """

    slot: str
    node_id: str
    pid: int
    tp_size: int
    device: Device
    device_ids: tuple[str, ...]


class EngineFactory(Protocol):
    """Builds engines inside the actor. Picklable: it travels there."""

    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> Engine:
        """A new engine; what a dead predecessor of the same slot left behind is ended first.

        With `fresh` it launches a server for every configuration and never switches one.
        """
        ...

    def clear(self, grant: DeviceGrant) -> None:
        """Remove the working files of a group whose engine is closed. Idempotent."""
        ...

    def last_log(self, grant: DeviceGrant) -> str:
        """The end of the last server's log of a group whose actor is lost, on that group's node; empty without one."""
        ...


@runtime_checkable
class ProbingFactory(EngineFactory, Protocol):
    """An engine factory whose servers are its own, so that they can be told what to record.

    `switches` is False when ordinary trials are to have servers of their own: an engine that was made to record does
    not serve them then.
    """

    @property
    def switches(self) -> bool: ...

    def prober(self, grant: DeviceGrant) -> ProbingEngine:
        """Like a call, for an engine that can be probed."""
        ...


@runtime_checkable
class TracingFactory(EngineFactory, Protocol):
    """An engine factory whose servers can be traced. `switches` is as for a `ProbingFactory`."""

    @property
    def switches(self) -> bool: ...

    def tracer(self, grant: DeviceGrant) -> TraceableEngine:
        """Like a call, for an engine that is traced in every layout and topk without another launch."""
        ...

    def trace_folder(self, grant: DeviceGrant) -> Path:
        """Where a group's trace lies until it is fetched. `clear` removes it as well."""
        ...


class GpuGroup:
    """Owns at most one server. Driven by one caller; only `stop` may be called while `run` works.

    Its end is not its own business: neither `__del__` nor `atexit` runs when Ray kills an actor. The driver calls
    `stop`; when that cannot happen, the guard process of the server sees its owner gone.
    """

    def __init__(self, factory: EngineFactory, slot: str, tp_size: int, device: Device) -> None:
        ids, resources, node_id = _assigned()
        self._factory = factory
        self._problem = device_problem(tp_size, device, ids, resources)
        self._grant = DeviceGrant(
            slot=slot, node_id=node_id, pid=os.getpid(), tp_size=tp_size, device=device, device_ids=ids
        )
        self._lock = threading.Lock()  # over _engine and _stopped
        self._engine: Engine | None = None
        self._only_records = False  # the engine is not to serve ordinary trials
        self._stopped = False
        self._traces = TraceFolder(factory.trace_folder(self._grant) if isinstance(factory, TracingFactory) else None)

    def grant(self) -> DeviceGrant:
        """Answers as soon as the actor lives."""
        return self._grant

    def run(self, job: TrialJob) -> TrialOutcome:
        """One trial, probe or trace; never raises for what a server does."""
        if job.probe_tokens is not None:
            return self._probe(job, job.probe_tokens)
        if job.trace is not None:
            return self._trace(job, job.trace)
        began_at, ended_s = time.time(), 0.0
        if job.fresh or self._only_records:
            ended_s += self._drop_engine()
        engine = self._ready_engine(partial(self._factory, fresh=job.fresh))
        if isinstance(engine, Failure):
            return failed_outcome(job, engine)
        outcome = run_trial(engine, job, HttpLoad(triple=job.config.triple, rival=job.rival))
        if job.fresh or outcome.failure is not None:
            ended_s += self._drop_engine()
        return replace(outcome, started_at_unix_s=began_at, finished_at_unix_s=time.time(), ended_s=ended_s)

    def _probe(self, job: TrialJob, max_tokens: int) -> TrialOutcome:
        if not isinstance(self._factory, ProbingFactory):
            message = "a server that runs already cannot be probed: the plugin must be there when it starts"
            return failed_outcome(job, Failure(phase="launch", kind="bad_config", message=message))
        engine = self._recorder(self._factory.prober, fits=can_probe(self._engine), switches=self._factory.switches)
        if isinstance(engine, Failure):
            return failed_outcome(job, engine)
        outcome = run_probe(cast("ProbingEngine", engine), job, max_tokens)
        if outcome.failure is not None:
            self._drop_engine()
        return outcome

    def _trace(self, job: TrialJob, task: TraceTask) -> TrialOutcome:
        if not isinstance(self._factory, TracingFactory):
            message = "a server that runs already cannot be traced: the plugin must be there when it starts"
            return failed_outcome(job, Failure(phase="launch", kind="bad_config", message=message))
        engine = self._recorder(self._factory.tracer, fits=can_trace(self._engine), switches=self._factory.switches)
        if isinstance(engine, Failure):
            return failed_outcome(job, engine)
        try:
            folder = self._traces.renew()
        except OSError as problem:
            message = " ".join(str(problem).split())
            return failed_outcome(job, Failure(phase="launch", kind="machine", message=message))
        outcome = run_trace(cast("TraceableEngine", engine), job, task, self._grant.device, folder)
        if outcome.failure is not None:
            self._drop_engine()
        return outcome

    def trace_piece(self, name: str, offset: int, size: int) -> bytes:
        """A part of a file that the last trace made, for a driver on another machine."""
        return self._traces.read_piece(name, offset, size)

    def _recorder(self, make: Callable[[DeviceGrant], Engine], *, fits: bool, switches: bool) -> Engine | Failure:
        """The engine that there is if it can do it, else a new one."""
        if not fits:
            self._drop_engine()
        if self._engine is None:
            self._only_records = not switches
        return self._ready_engine(make)

    def stop(self) -> None:
        """End the server and whatever `run` is doing with it; returns when nothing of it is left. Idempotent."""
        with self._lock:
            self._stopped = True
            engine = self._engine
        if engine is not None:
            engine.close()
        self._traces.clear()
        self._factory.clear(self._grant)

    def _drop_engine(self) -> float:
        """End the engine if there is one; how many seconds that took."""
        began_s = time.monotonic()
        with self._lock:
            engine, self._engine = self._engine, None
            self._only_records = False
        if engine is not None:
            engine.close()
        return time.monotonic() - began_s

    def _ready_engine(self, make: Callable[[DeviceGrant], Engine]) -> Engine | Failure:
        if self._problem:
            return Failure(phase="placement", kind="placement", message=self._problem)
        with self._lock:
            if self._stopped:
                return Failure(phase="launch", kind="interrupted", message="the group was stopped")
            if self._engine is None:
                try:
                    self._engine = make(self._grant)
                except EnvironmentProblem as problem:
                    return Failure(phase="launch", kind="environment", message=str(problem))
                except OSError as problem:
                    return Failure(phase="launch", kind="machine", message=" ".join(str(problem).split()))
            return self._engine


def _assigned() -> tuple[tuple[str, ...], dict[str, float], str]:
    """GPU ids, logical resources and node of this actor, as Ray gave them.

    The ids come from Ray and not from CUDA_VISIBLE_DEVICES: with RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES Ray leaves
    that variable alone, and without GPUs it leaves it unset, so that every GPU would be visible.
    """
    import ray

    context = ray.get_runtime_context()
    ids = tuple(str(item) for item in context.get_accelerator_ids().get("GPU", []))
    return ids, dict(context.get_assigned_resources()), str(context.get_node_id())
