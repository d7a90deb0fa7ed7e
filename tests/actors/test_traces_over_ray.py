"""A trace made in a group on a real Ray: taken where it lies, or fetched from the actor as from another machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from device_engines import TraceableFactory
from doubles.tracing_server import VOCABULARY, text_of
from trial_builders import WORKLOAD

from actors import ray_cluster, trace_transfer
from actors.cluster_address import ClusterAddress
from actors.group_pool import GroupPool
from actors.job import TraceTask, TrialJob
from actors.load.workload import prompt_of
from actors.ray_cluster import RayCluster
from actors.ray_connection import connect
from actors.tracing import tracing_config
from results.trace_segments import TracedFiles, keep_segments
from results.traces import Trace
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import EnvironmentProblem

TEXTS = [f"prompt {i}" for i in range(6)]
TASK = TraceTask(workload_id="w", concurrency=2, vocabulary=VOCABULARY, end_ids=frozenset(), max_bytes=10**7)
TRIPLE = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)
CONFIG = tracing_config(EngineConfig(layout=(2, 4, 5), triple=TRIPLE, tp_size=1), num_steps=3, eagle_topk=2)


@pytest.fixture(scope="module")
def cluster(ray_address: str) -> Iterator[RayCluster]:
    made = connect(ClusterAddress(address=ray_address))
    yield made
    made.shutdown()


def trace(pool: GroupPool, texts: list[str], look: Callable[[], None] = lambda: None) -> TracedFiles:
    load = replace(
        WORKLOAD, prompts=tuple(prompt_of(text) for text in texts), warmup=(), max_new_tokens=20, ignore_eos=True,
        temperature=0.0,
    )  # fmt: skip
    assert pool.try_start(TrialJob(trial_id=texts[0], config=CONFIG, workload=load, trace=TASK))
    end = time.monotonic() + 120
    while not (outcomes := pool.wait(0.5)):
        assert time.monotonic() < end
        look()
    (outcome,) = outcomes
    assert (outcome.failure, outcome.traced is None) == (None, False)
    assert outcome.traced is not None
    return outcome.traced


def test_the_driver_goes_on_while_a_trace_is_fetched(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    fetching: list[bool] = []

    def slow(traced: TracedFiles, read: trace_transfer.ReadPiece, into: Path) -> TracedFiles:
        fetching.append(True)
        fetching.append(looked.wait(60))
        return trace_transfer.fetch(traced, read, into)

    monkeypatch.setattr(ray_cluster, "is_here", lambda traced: False)
    monkeypatch.setattr(ray_cluster, "fetch", slow)
    pool = GroupPool(cluster, TraceableFactory(folder=tmp_path / "groups"), "cpu")

    def look() -> None:
        if fetching:
            looked.set()

    try:
        traced = trace(pool, TEXTS[:2], look)
        assert fetching == [True, True]
        assert sum(len(segment.prompts) for segment in traced.segments) == 2
        assert traced.folder.is_dir()
    finally:
        pool.close()
    assert not traced.folder.exists()


def test_a_trace_that_cannot_be_kept_is_no_groups_fault(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(traced: TracedFiles, read: trace_transfer.ReadPiece, into: Path) -> TracedFiles:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ray_cluster, "is_here", lambda traced: False)
    monkeypatch.setattr(ray_cluster, "fetch", full)
    pool = GroupPool(cluster, TraceableFactory(folder=tmp_path / "groups"), "cpu")
    try:
        with pytest.raises(EnvironmentProblem, match=r"the trace cannot be fetched: .*No space left on device"):
            trace(pool, TEXTS[:2])
    finally:
        pool.close()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_files_are_within_reach_until_the_next_trace(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    if elsewhere:
        monkeypatch.setattr(ray_cluster, "is_here", lambda traced: False)
        monkeypatch.setattr(trace_transfer, "PIECE_BYTES", 1000)
    pool = GroupPool(cluster, TraceableFactory(folder=tmp_path / "groups"), "cpu")
    try:
        first = trace(pool, TEXTS[:4])
        assert trace_transfer.is_here(first) is not elsewhere
        kept = keep_segments(tmp_path, first)
        second = trace(pool, TEXTS[4:])
        assert not first.folder.exists()
        assert keep_segments(tmp_path, second) == kept
    finally:
        pool.close()
    assert not second.folder.exists()
    prompts = {prompt.prompt_id: list(prompt.output_ids) for prompt in Trace(kept).prompts}
    assert prompts == {prompt_of(text).prompt_id: text_of(text, 23) for text in TEXTS}
    assert sum(len(piece.pools.tokens) for piece in Trace(kept).pieces()) == 6 * 19
