"""GPU groups on a real Ray: what actors hold, how they are lost and replaced, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_engines import SleepingFactory
from trial_builders import job

from actors.cluster_address import ClusterAddress
from actors.engines.guarded_process import find_leftovers
from actors.gpu_group import GpuGroup
from actors.group_pool import GroupPool
from actors.job import TrialOutcome
from actors.ray_cluster import RayCluster
from actors.ray_connection import connect


@pytest.fixture(scope="module")
def cluster(ray_address: str) -> Iterator[RayCluster]:
    made = connect(ClusterAddress(address=ray_address))
    yield made
    made.shutdown()


def finish(pool: GroupPool, count: int, timeout_s: float = 60.0) -> dict[str, TrialOutcome]:
    found: dict[str, TrialOutcome] = {}
    end = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < end, f"only {sorted(found)} ended"
        found |= {outcome.trial_id: outcome for outcome in pool.wait(0.5)}
    return found


def wait_for(path: Path, timeout_s: float = 60.0) -> list[int]:
    end = time.monotonic() + timeout_s
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    return [int(pid) for pid in path.read_text().split()]


def wait_until_gone(owner: str, timeout_s: float = 15.0) -> None:
    end = time.monotonic() + timeout_s
    while left := find_leftovers(owner):
        assert time.monotonic() < end, f"left behind: {left}"
        time.sleep(0.1)


def wait_for_child(owner: str, known: set[int], timeout_s: float = 30.0) -> int:
    """The process of this owner beside the known ones: what the server has started in a session of its own."""
    end = time.monotonic() + timeout_s
    while not (others := [pid for pid, _ in find_leftovers(owner) if pid not in known]):
        assert time.monotonic() < end
        time.sleep(0.05)
    return others[0]


def free_gpus() -> float:
    import ray

    return float(ray.available_resources().get("GPU", 0.0))


def wait_for_free_gpus(count: float, timeout_s: float = 15.0) -> None:
    end = time.monotonic() + timeout_s
    while free_gpus() != count:
        assert time.monotonic() < end, f"{free_gpus()} GPUs are free, not {count}"
        time.sleep(0.1)


def message(outcome: TrialOutcome) -> dict[str, str]:
    assert outcome.failure is not None, outcome
    words = outcome.failure.message.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def test_groups_hold_exactly_their_own_gpus_and_give_them_back(cluster: RayCluster, tmp_path: Path) -> None:
    factory = SleepingFactory(folder=tmp_path, sweep=uuid.uuid4().hex)
    pool = GroupPool(cluster, factory, "cuda")
    for i, tp_size in enumerate((2, 4, 1)):
        assert pool.try_start(job(f"t{i}-a1", tp_size=tp_size))
    outcomes = finish(pool, 3)
    ids = {trial_id: message(outcome)["ids"] for trial_id, outcome in outcomes.items()}
    assert {trial_id: len(text.split(",")) for trial_id, text in ids.items()} == {"t0-a1": 2, "t1-a1": 4, "t2-a1": 1}
    taken = ",".join(ids.values()).split(",")
    # whatever order Ray gives them in, no GPU is held twice
    assert len(set(taken)) == 7
    assert all(message(outcome)["visible"] == message(outcome)["ids"] for outcome in outcomes.values())
    assert free_gpus() == 1.0
    # a server of eight needs all of them: the idle groups make room
    assert pool.try_start(job("t3-a1", tp_size=8))
    assert len(message(finish(pool, 1)["t3-a1"])["ids"].split(",")) == 8
    pool.close()
    wait_for_free_gpus(8.0)
    assert find_leftovers(factory.sweep + "/") == []
    assert (tmp_path / "group0.cleared").exists()


def test_an_actor_without_its_gpus_refuses_and_ids_come_from_ray(cluster: RayCluster, tmp_path: Path) -> None:
    import ray

    factory = SleepingFactory(folder=tmp_path, sweep=uuid.uuid4().hex)
    # without GPUs of its own an actor would see those of everybody
    none = ray.remote(GpuGroup).options(num_cpus=1).remote(factory, "none", 2, "cuda")
    # Ray told to leave CUDA_VISIBLE_DEVICES alone: what is held is still known
    unset = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    two = ray.remote(GpuGroup).options(num_cpus=1, num_gpus=2, runtime_env=unset).remote(factory, "two", 2, "cuda")
    try:
        refused, ran = ray.get([none.run.remote(job("t0-a1", tp_size=2)), two.run.remote(job("t1-a1", tp_size=2))])
        assert refused.failure.kind == "placement"
        assert refused.failure.message == "the group's actor holds GPUs [], tp_size 2 needs exactly 2"
        assert message(ran)["visible"] == "unset"
        assert len(message(ran)["ids"].split(",")) == 2
        # stopped groups start nothing more
        ray.get(two.stop.remote())
        assert ray.get(two.run.remote(job("t2-a1", tp_size=2))).failure.kind == "interrupted"
    finally:
        for actor in (none, two):
            ray.kill(actor)
    wait_for_free_gpus(8.0)


def test_cpu_slots_are_held_where_there_is_no_gpu(cluster: RayCluster, tmp_path: Path) -> None:
    pool = GroupPool(cluster, SleepingFactory(folder=tmp_path, sweep=uuid.uuid4().hex), "cpu")
    try:
        assert pool.lack([2, 8]) is None
        assert pool.lack([16]) == "tp_size 16 needs 16 CPUs on one node; the largest of 1 nodes has 8 GPUs and 8 CPUs"
        assert pool.try_start(job("t0-a1", tp_size=2))
        assert finish(pool, 1)["t0-a1"].failure is not None
    finally:
        pool.close()


def test_a_killed_actor_is_a_lost_trial_its_server_dies_and_the_next_trial_runs(
    cluster: RayCluster, tmp_path: Path
) -> None:
    factory = SleepingFactory(folder=tmp_path, sweep=uuid.uuid4().hex, hold_s=30.0)
    pool = GroupPool(cluster, factory, "cuda")
    pids = tmp_path / "group0.pids"
    try:
        assert pool.try_start(job("t0-a1"))
        actor, server, _ = wait_for(pids)
        os.kill(actor, signal.SIGKILL)
        outcome = finish(pool, 1)["t0-a1"]
        assert outcome.failure is not None
        assert (outcome.failure.kind, outcome.failure.is_infrastructure) == ("lost_actor", True)
        assert outcome.failure.log_tail == outcome.server_log == "the last words of group0"
        wait_until_gone(factory.owner("group0"))
        pids.unlink()
        assert pool.try_start(job("t0-a2"))
        successor, second_server, guard = wait_for(pids)
        assert successor != actor
        assert second_server != server
        # the guard and then the actor killed: nobody is left to end the server's own children but the next engine
        # (stopped first, so that the actor cannot clear up in between)
        child = wait_for_child(factory.owner("group0"), {second_server, guard})
        os.kill(successor, signal.SIGSTOP)
        os.kill(guard, signal.SIGKILL)
        os.kill(successor, signal.SIGKILL)
        finish(pool, 1)
        orphans = find_leftovers(factory.owner("group0"))
        assert child in [pid for pid, _ in orphans]
        pids.unlink()
        assert pool.try_start(job("t0-a3"))
        wait_for(pids)
        assert not set(orphans) & set(find_leftovers(factory.owner("group0")))
    finally:
        before = time.monotonic()
        pool.close(interrupt=True)
        assert time.monotonic() - before < 10
    wait_until_gone(factory.owner("group0"))
    wait_for_free_gpus(8.0)
