"""The pool against a cluster in this process: reuse, making room, limits, losses, and that everything is given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from trial_builders import job

from actors.engines.engine import Engine
from actors.gpu_group import DeviceGrant
from actors.group_pool import STOP_TIMEOUT_S, Group, GroupPool, GroupRequest
from actors.job import TrialJob, TrialOutcome
from actors.outcomes import failed_outcome
from actors.placement import Node
from results.failures import Failure

OK = Failure(phase="measure", kind="client", message="stands for any outcome")


class NoFactory:
    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> Engine:
        raise AssertionError("no engine is built here")

    def clear(self, grant: DeviceGrant) -> None:
        pass


@dataclass
class FakeGroup:
    request: GroupRequest
    node_id: str
    alive: bool = True
    closed: list[float] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    result: TrialOutcome | Failure | None = None
    closing: Callable[[], object] = lambda: None

    def start(self, job: TrialJob) -> None:
        assert not self.closed
        self.started.append(job.trial_id)
        self.result = None

    def grant(self) -> DeviceGrant | None:
        if not self.alive:
            return None
        return DeviceGrant(
            slot=self.request.slot,
            node_id=self.node_id,
            pid=1,
            tp_size=self.request.tp_size,
            device=self.request.device,
            device_ids=(),
        )

    def take(self) -> TrialOutcome | Failure | None:
        return self.result

    def close(self, timeout_s: float) -> None:
        self.closed.append(timeout_s)
        self.closing()


class FakeCluster:
    def __init__(self, *nodes: Node) -> None:
        self.now = list(nodes)
        self.groups: list[FakeGroup] = []

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.now)

    def open_group(self, request: GroupRequest) -> Group:
        self.groups.append(FakeGroup(request, self.now[0].node_id))
        return self.groups[-1]

    def wait(self, groups: Sequence[Group], timeout_s: float) -> None:
        pass


def pool_on(cluster: FakeCluster, **limits: float) -> GroupPool:
    return GroupPool(cluster, NoFactory(), "cuda", **limits)  # type: ignore[arg-type]


def finish(group: FakeGroup, trial: TrialJob) -> None:
    group.result = failed_outcome(trial, OK)


def test_a_group_is_reused_for_its_size() -> None:
    cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=2))
    pool = pool_on(cluster)
    first, second = job("t0-a1", tp_size=2), job("t1-a1", tp_size=2)
    assert pool.try_start(first)
    assert not pool.try_start(second)
    assert pool.wait(0) == ()
    finish(cluster.groups[0], first)
    assert [outcome.trial_id for outcome in pool.wait(0)] == ["t0-a1"]
    assert pool.try_start(second)
    assert cluster.groups[0].started == ["t0-a1", "t1-a1"]
    assert len(cluster.groups) == 1


def test_idle_groups_of_another_size_make_room() -> None:
    cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=2))
    pool = pool_on(cluster)
    small = [job(f"t{i}-a1") for i in range(2)]
    assert all(pool.try_start(item) for item in small)
    assert {group.request.slot for group in cluster.groups} == {"group0", "group1"}
    large = job("t2-a1", tp_size=2)
    assert not pool.try_start(large)
    finish(cluster.groups[0], small[0])
    assert len(pool.wait(0)) == 1
    # one idle group is closed, but the other one still holds the second GPU
    assert not pool.try_start(large)
    finish(cluster.groups[1], small[1])
    assert len(pool.wait(0)) == 1
    assert pool.try_start(large)
    assert [len(group.closed) for group in cluster.groups] == [1, 1, 0]
    assert cluster.groups[2].request.slot == "group0"


def test_limits_on_trials_and_on_devices() -> None:
    roomy = Node(node_id="n", cpus=8, gpus=8)
    pool = pool_on(FakeCluster(roomy), max_parallel=1)
    assert pool.try_start(job("t0-a1"))
    assert not pool.try_start(job("t1-a1"))
    pool = pool_on(FakeCluster(roomy), max_devices=3)
    assert pool.try_start(job("t0-a1", tp_size=2))
    assert not pool.try_start(job("t1-a1", tp_size=2))
    assert pool.try_start(job("t2-a1", tp_size=1))
    assert pool.lack([4]) == "tp_size 4 needs 4 devices, cluster.gpus allows 3"
    assert pool.lack([1, 2]) is None


def test_what_the_cluster_can_never_hold_is_said_before_anything_starts() -> None:
    pool = pool_on(FakeCluster(Node(node_id="n", cpus=8, gpus=2)))
    assert pool.lack([2, 4]) == (
        "tp_size 4 needs 4 GPUs and 1 CPUs on one node; the largest of 1 nodes has 2 GPUs and 8 CPUs"
    )


def test_a_lost_group_fails_its_trial_and_is_replaced() -> None:
    cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=1))
    pool = pool_on(cluster)
    pool.try_start(job("t0-a1"))
    cluster.groups[0].result = Failure(phase="measure", kind="lost_actor", message="killed")
    (outcome,) = pool.wait(0)
    assert (outcome.trial_id, outcome.failure and outcome.failure.kind) == ("t0-a1", "lost_actor")
    assert len(cluster.groups[0].closed) == 1
    assert pool.try_start(job("t0-a2"))
    # the successor gets the slot, and so ends what the lost group left behind
    assert cluster.groups[1].request.slot == cluster.groups[0].request.slot


def test_a_node_that_leaves_makes_the_next_trial_fail_instead_of_wait() -> None:
    cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=2))
    pool = pool_on(cluster)
    cluster.now.clear()
    assert pool.try_start(job("t0-a1"))
    (outcome,) = pool.wait(0)
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.phase) == ("lost_node", "placement")
    assert cluster.groups == []


def test_a_group_that_never_gets_its_devices_is_given_up() -> None:
    now = [0.0]
    cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=2))
    pool = GroupPool(cluster, NoFactory(), "cuda", start_timeout_s=60, clock=lambda: now[0])
    pool.try_start(job("t0-a1", tp_size=2))
    cluster.groups[0].alive = False
    now[0] = 59.0
    assert pool.wait(0) == ()
    now[0] = 61.0
    (outcome,) = pool.wait(0)
    assert outcome.failure is not None
    assert outcome.failure.kind == "placement"
    assert outcome.failure.is_infrastructure
    assert outcome.failure.message.startswith("no 2 GPUs and 1 CPUs became free within 60 s")
    assert pool.running == 0


def test_groups_are_closed_at_the_same_time() -> None:
    """Each may take a minute, in which the driver does not say that it lives."""
    for large in (False, True):
        cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=4))
        pool = pool_on(cluster)
        small = [job(f"t{i}-a1") for i in range(4)]
        assert all(pool.try_start(item) for item in small)
        together = threading.Barrier(4, timeout=20)
        for group, trial in zip(cluster.groups, small, strict=True):
            finish(group, trial)
            group.closing = together.wait
        assert len(pool.wait(0)) == 4
        if large:
            assert pool.try_start(job("t4-a1", tp_size=4))
            assert [group.closed for group in cluster.groups] == [[STOP_TIMEOUT_S]] * 4 + [[]]
        pool.close()
        assert [group.closed for group in cluster.groups[:4]] == [[STOP_TIMEOUT_S]] * 4


def test_what_closing_raises_is_raised() -> None:
    cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=4))
    pool = pool_on(cluster)
    pool.try_start(job("t0-a1"))

    def broken() -> None:
        raise OSError("no cluster")

    cluster.groups[0].closing = broken
    with pytest.raises(OSError, match="no cluster"):
        pool.close()


def test_closing_closes_every_group_once() -> None:
    cluster = FakeCluster(Node(node_id="n", cpus=8, gpus=4))
    pool = pool_on(cluster)
    for i in range(3):
        pool.try_start(job(f"t{i}-a1"))
    pool.close(interrupt=True)
    pool.close()
    assert [group.closed for group in cluster.groups] == [[2.0], [2.0], [2.0]]
