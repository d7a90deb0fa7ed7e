"""The writer of traces, as it runs inside a server: what it keeps, and what it does when the disk is full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from process_memory import memory_of

torch = pytest.importorskip("torch")

import os  # noqa: E402

from actors.sglang_plugin.feed_probe import FeedProbe  # noqa: E402
from actors.sglang_plugin.orders import ControlFolder, Order, TraceOrder  # noqa: E402
from actors.sglang_plugin.pool_trace import PoolTrace, pool_sizes  # noqa: E402
from actors.sglang_plugin.switch import Switch  # noqa: E402
from results.pool_trace_file import PoolTraceFile  # noqa: E402

STEPS, TOPK, AT_ONCE = 5, 8, 50
NODES, PARENTS = pool_sizes(STEPS, TOPK)
GB = 10**9
ORDER = Order(
    sequence=1,
    num_steps=STEPS,
    eagle_topk=TOPK,
    num_draft_tokens=STEPS + 1,
    ids=None,
    graph_batch_sizes=(),
)


def started(file: Path, max_bytes: int = GB, topk: int = TOPK, rank: int = 0) -> PoolTrace:
    trace = PoolTrace()
    order = replace(ORDER, eagle_topk=topk, trace=TraceOrder(file=str(file), poison_id=7, max_bytes=max_bytes))
    trace.start(order, rank=rank)
    return trace


def write_round(trace: PoolTrace, position: int, requests: int = AT_ONCE) -> Any:
    """One draft of every request, as SGLang calls the hooks; returns the drafts that it gets to verify."""
    tokens = torch.full((requests, NODES), position, dtype=torch.int64)
    scores, parents = torch.rand(requests, NODES), torch.zeros(requests, PARENTS, dtype=torch.int64)
    batch = SimpleNamespace(
        rids=[f"request {i}" for i in range(requests)],
        seq_lens=torch.full((requests,), position),
        forward_mode=SimpleNamespace(is_idle=lambda: False),
    )

    def organize(_: Any, token_list: Any, parents_list: Any, count: int) -> Any:
        return parents_list[0], None, token_list[0][:, : count - 1]

    def draft_forward(_: Any, batch: Any) -> Any:
        return *trace.on_organize(organize, [scores], [tokens], [parents, parents[:, :1]], STEPS + 1), None

    return trace.on_draft_forward(draft_forward, None, batch)[2]


def test_pools_go_to_the_disk_and_not_to_memory(tmp_path: Path) -> None:
    """100,000 positions of 264 candidates, 225 MB on the disk, in a process that grows by 9 MB at most."""
    file = tmp_path / "1.pools"
    trace = started(file)
    for position in range(100):
        write_round(trace, position)
    before = memory_of(os.getpid())
    for position in range(100, 2000):
        drafts = write_round(trace, position)
    grown = memory_of(os.getpid()).anonymous - before.anonymous
    trace.stop()
    assert (drafts == 7).all()
    read = PoolTraceFile(file)
    assert NODES == 264
    assert len(read.records) == 2000 * AT_ONCE == 100_000
    assert file.stat().st_size >= 225_000_000
    assert read.records["tokens"][read.rows_of("request 3")[500]].tolist() == [500] * NODES
    assert grown < 9


def test_a_trace_ends_at_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "1.pools"
    trace = started(file, max_bytes=5000)
    for position in range(9):
        write_round(trace, position, requests=1)
    trace.stop()
    read = PoolTraceFile(file)
    assert len(read.records) == 3  # of 2252 bytes
    assert (read.truncated, read.trouble) == (True, None)


def test_a_full_disk_ends_the_trace_and_not_the_server(tmp_path: Path) -> None:
    file = tmp_path / "1.pools"
    trace = started(file)
    assert trace._file is not None
    trace._file.close()
    trace._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115  (the trace closes it)
    assert (write_round(trace, 1) == 7).all()
    write_round(trace, 2)
    trace.stop()
    assert file.with_name("1.pools.requests").read_text().count("truncated") == 1
    read = PoolTraceFile(file)
    assert (read.truncated, read.trouble) == (True, "[Errno 28] No space left on device")


@pytest.mark.parametrize("full", ["_file", "_requests"])
def test_a_disk_that_fills_up_behind_the_buffer_does_not_end_the_server(tmp_path: Path, full: str) -> None:
    """What was written so far is in a buffer: only the flush that the driver asks for meets the full disk."""
    file = tmp_path / "1.pools"
    trace = started(file)
    getattr(trace, full).close()
    setattr(trace, full, Path("/dev/full").open("wb" if full == "_file" else "w"))  # noqa: SIM115  (the trace closes it)
    write_round(trace, 1, requests=1)
    switch = Switch(ControlFolder.create(tmp_path / "control", "secret"), trace, FeedProbe())
    for _ in range(2):
        assert switch.on_flush(lambda scheduler: True, SimpleNamespace(draft_worker=None))
        assert (write_round(trace, 2) == 7).all()
    trace.stop()
    if full == "_file":
        assert file.with_name("1.pools.requests").read_text().count("truncated") == 1
        assert len(file.read_bytes().splitlines()) <= 1
    assert write_round(trace, 3, requests=1).tolist() == [[3] * STEPS]  # nothing is poisoned any more


def test_a_rank_that_cannot_answer_goes_on_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = ControlFolder.create(tmp_path / "control", "secret")
    control.give(replace(ORDER, trace=None))
    monkeypatch.setattr("actors.sglang_plugin.switch.tp_rank", lambda: 0)

    def no_space(answer: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(control, "answer", no_space)
    switch = Switch(control, PoolTrace(), FeedProbe())
    assert switch.on_flush(lambda scheduler: True, SimpleNamespace(draft_worker=SimpleNamespace()))


def test_other_ranks_poison_alike_and_write_nothing(tmp_path: Path) -> None:
    trace = started(tmp_path / "1.pools", rank=1)
    assert (write_round(trace, 1) == 7).all()
    trace.stop()
    assert list(tmp_path.iterdir()) == []
