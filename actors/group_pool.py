"""The pool of GPU groups: one long-lived actor per group, reused for trials of its TP size, replaced when lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from actors.background import InBackground
from actors.gpu_group import DeviceGrant, EngineFactory
from actors.job import TrialJob, TrialOutcome
from actors.outcomes import failed_outcome
from actors.placement import Bundle, Device, Held, Infeasible, Node, Placed, bundle_of, place
from results.failures import Failure

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 600.0
"""How long a group may wait for its devices; another tenant of the cluster may hold them."""

STOP_TIMEOUT_S = 60.0
INTERRUPT_TIMEOUT_S = 2.0
"""How long a group may take to stop: at leisure, and when the driver itself must end (`ray job stop` gives 3 s)."""


@dataclass(frozen=True, kw_only=True)
class GroupRequest:
    """What a new group is to be; `factory` builds its engines where it lives."""

    factory: EngineFactory
    slot: str
    tp_size: int
    device: Device
    bundle: Bundle


class Group(Protocol):
    """A remote GPU group, alive or not. No method but `close` blocks."""

    def start(self, job: TrialJob) -> None:
        """Begin a trial; the group must be idle."""
        ...

    def grant(self) -> DeviceGrant | None:
        """What the group holds, once its actor lives; None before."""
        ...

    def take(self) -> TrialOutcome | Failure | None:
        """The outcome of the trial that was started, or how the group was lost; None until it is all here."""
        ...

    def close(self, timeout_s: float) -> None:
        """Ask the group to stop its server, wait at most so long, then end the actor and free its devices."""
        ...


class Cluster(Protocol):
    """Where groups live."""

    def nodes(self) -> tuple[Node, ...]:
        """The live nodes with their total resources."""
        ...

    def open_group(self, request: GroupRequest) -> Group:
        """A new group, not waited for. Never raises for want of resources: the group then has no grant."""
        ...

    def wait(self, groups: Sequence[Group], timeout_s: float) -> None:
        """Return when one of the groups has something to take, at the latest after `timeout_s`."""
        ...


@dataclass
class _Member:
    group: Group
    slot: str
    bundle: Bundle
    tp_size: int
    node_id: str
    opened_at_s: float
    job: TrialJob | None = None
    started_at_unix_s: float = 0.0
    idle_since_s: float = field(default=0.0)


class GroupPool:
    """Hands trials to groups. Owned and driven by one thread, which must call `close`.

    At most `max_parallel` trials run at once and at most `max_devices` GPUs (CPU slots without CUDA) are held, idle
    groups included; None means as many as the cluster has. A group that died is replaced by the next trial that needs
    one; its trial ends as a Failure of kind `lost_actor` or `lost_node`.
    """

    def __init__(
        self,
        cluster: Cluster,
        factory: EngineFactory,
        device: Device,
        *,
        max_parallel: int | None = None,
        max_devices: int | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._factory = cluster, factory
        self._device: Device = device
        self._max_parallel = max_parallel
        self._max_devices = max_devices
        self._start_timeout_s = start_timeout_s
        self._clock = clock
        self._members: list[_Member] = []
        self._refused: list[TrialOutcome] = []

    def lack(self, tp_sizes: Iterable[int]) -> str | None:
        """Why some of these sizes could never run here, in one line; None when all can."""
        nodes = self._cluster.nodes()
        for tp_size in sorted(set(tp_sizes)):
            if self._max_devices is not None and tp_size > self._max_devices:
                return f"tp_size {tp_size} needs {tp_size} devices, cluster.gpus allows {self._max_devices}"
            found = place(tp_size, self._device, nodes)
            if isinstance(found, Infeasible):
                return found.reason
        return None

    def try_start(self, job: TrialJob) -> bool:
        """Begin `job` if a group of its size is idle or can be opened; False when it must wait for others to finish.

        Idle groups of other sizes are closed when their devices are needed (this blocks until their servers are gone).
        A job that the cluster can no longer hold begins and fails: `wait` returns it.
        """
        if self._max_parallel is not None and self.running >= self._max_parallel:
            return False
        tp_size = job.config.tp_size
        member = next((item for item in self._members if item.job is None and item.tp_size == tp_size), None)
        member = member or self._open(job, tp_size)
        if member is None:
            return any(outcome.trial_id == job.trial_id for outcome in self._refused)
        member.job = job
        member.started_at_unix_s = time.time()
        member.group.start(job)
        return True

    def wait(self, timeout_s: float) -> tuple[TrialOutcome, ...]:
        """The trials that ended since the last call; blocks for at most `timeout_s`, less when one ends."""
        outcomes, self._refused = self._refused, []
        busy = [member for member in self._members if member.job is not None]
        if not outcomes and busy:
            self._cluster.wait([member.group for member in busy], timeout_s)
        for member in busy:
            outcome = self._take(member)
            if outcome is not None:
                outcomes.append(outcome)
        return tuple(outcomes)

    def has_room(self) -> bool:
        """Whether a trial of some size could start now. The search is asked only then, when it knows the most."""
        if self._max_parallel is not None and self.running >= self._max_parallel:
            return False
        if any(member.job is None for member in self._members):
            return True
        found = place(1, self._device, self._cluster.nodes(), self._held())
        return isinstance(found, Infeasible) or (isinstance(found, Placed) and self._within_limit(1))

    @property
    def device(self) -> Device:
        return self._device

    @property
    def running(self) -> int:
        return sum(member.job is not None for member in self._members)

    def close(self, *, interrupt: bool = False) -> None:
        """Stop every group and free its devices; idempotent. `interrupt` does not wait for servers to end politely:
        their guards end them in any case."""
        members, self._members = self._members, []
        _close_all([member.group for member in members], INTERRUPT_TIMEOUT_S if interrupt else STOP_TIMEOUT_S)

    def _open(self, job: TrialJob, tp_size: int) -> _Member | None:
        nodes = self._cluster.nodes()
        dropped: list[Group] = []
        while True:
            found = place(tp_size, self._device, nodes, self._held())
            if isinstance(found, Infeasible):
                failure = Failure(phase="placement", kind="lost_node", message=found.reason)
                self._refused.append(failed_outcome(job, failure))
                break
            if isinstance(found, Placed) and self._within_limit(tp_size):
                break
            idle = [member for member in self._members if member.job is None]
            if not idle:
                break
            longest = min(idle, key=lambda member: member.idle_since_s)
            self._members.remove(longest)
            dropped.append(longest.group)
        _close_all(dropped, STOP_TIMEOUT_S)
        if not isinstance(found, Placed) or not self._within_limit(tp_size):
            return None
        slot = self._free_slot()
        bundle = bundle_of(tp_size, self._device)
        group = self._cluster.open_group(
            GroupRequest(factory=self._factory, slot=slot, tp_size=tp_size, device=self._device, bundle=bundle)
        )
        member = _Member(
            group=group,
            slot=slot,
            bundle=bundle,
            tp_size=tp_size,
            node_id=found.node_id,
            opened_at_s=self._clock(),
        )
        self._members.append(member)
        return member

    def _within_limit(self, tp_size: int) -> bool:
        held = sum(member.tp_size for member in self._members)
        return self._max_devices is None or held + tp_size <= self._max_devices

    def _held(self) -> list[Held]:
        return [Held(node_id=member.node_id, bundle=member.bundle) for member in self._members]

    def _free_slot(self) -> str:
        taken = {member.slot for member in self._members}
        return next(slot for slot in (f"group{i}" for i in range(len(taken) + 1)) if slot not in taken)

    def _take(self, member: _Member) -> TrialOutcome | None:
        job = member.job
        assert job is not None
        grant = member.group.grant()
        if grant is not None:
            member.node_id = grant.node_id
        taken = member.group.take()
        if taken is None and grant is None and self._clock() - member.opened_at_s > self._start_timeout_s:
            taken = Failure(
                phase="placement",
                kind="placement",
                message=f"no {member.bundle} became free within {self._start_timeout_s:g} s; is the cluster shared?",
            )
        if taken is None:
            return None
        if isinstance(taken, Failure):
            logger.warning("group %s is lost: %s", member.slot, taken.message)
            self._members.remove(member)
            member.group.close(INTERRUPT_TIMEOUT_S)
            return failed_outcome(job, taken, member.started_at_unix_s)
        member.job = None
        member.idle_since_s = self._clock()
        return taken


def _close_all(groups: Sequence[Group], timeout_s: float) -> None:
    """At the same time, so that they take no longer than one: the driver does nothing else meanwhile, not even say that
    it lives."""
    closings = [InBackground(partial(group.close, timeout_s)) for group in groups]
    for closing in closings:
        closing.result()
