"""Cells measured on the timed server."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from doubles.timed_answers import TimedPlan
from doubles.timed_server import TimedServer

from actors.load.measurement import measure_cell
from actors.load.workload import Workload
from results.failures import Failure
from results.observations import CellObservation, RequestRow


def alive() -> None:
    return None


def measured(server: TimedServer, workload: Workload, concurrency: int = 4, **kwargs: Any) -> CellObservation:
    cell = measure_cell(server.url, workload, concurrency, failure_now=alive, **kwargs)
    assert isinstance(cell, CellObservation), cell
    return cell


def failed(server: TimedServer, workload: Workload, failure_now: Callable[[], Failure | None] = alive) -> Failure:
    cell = measure_cell(server.url, workload, workload.concurrency[0], failure_now=failure_now)
    assert isinstance(cell, Failure), cell
    return cell


def ttft_ms(row: RequestRow) -> float:
    assert row.first_token_s is not None
    return (row.first_token_s - row.sent_s) * 1e3


def tpot_ms(row: RequestRow) -> float:
    assert row.first_token_s is not None
    return (row.finished_s - row.first_token_s) * 1e3 / (row.completion_tokens - 1)


def measured_on_time(plan: TimedPlan, workload: Workload) -> CellObservation:
    """A cell in which the client saw every event as soon as the server wrote it.

    Other work on the machine can only add to the way between them, so the best of three cells counts: a client that
    reads its clock late, or early, does so in all of them.
    """
    seen: list[tuple[float, float]] = []
    for _ in range(3):
        with TimedServer(plan) as server:
            cell = measured(server, workload)
            assert server.seen.most_running == 4
        first_ms, ways_ms = [], []
        for row, prompt in zip(cell.rows, workload.prompts, strict=True):
            read_s, *written_s = server.seen.times_s[prompt.text]
            assert row.chunk_times_s[-1] == row.finished_s
            first_ms.append(ttft_ms(row) - (written_s[0] - read_s) * 1e3)
            ways_ms += [(at - written) * 1e3 for at, written in zip(row.chunk_times_s, written_s, strict=True)]
        assert min(first_ms) >= 0
        # the client's clock begins with its first request, so its ways are known but for one constant
        seen.append((statistics.median(first_ms), statistics.median(ways_ms) - min(ways_ms)))
        if seen[-1][0] < 10 and seen[-1][1] < 2:
            return cell
    raise AssertionError(f"median milliseconds to the first token and for every event beyond the server's own: {seen}")
