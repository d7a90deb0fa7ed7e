from __future__ import annotations

import asyncio

import pytest
import uvloop
from doubles.timed_answers import TimedPlan
from doubles.timed_server import TimedServer
from load_builders import numbered_workload

from actors.load import event_loop
from actors.load.measurement import measure_cell
from results.observations import CellObservation


@pytest.mark.parametrize("new_event_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_cell_is_the_same_on_either_loop(new_event_loop: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "new_event_loop", new_event_loop)
    workload = numbered_workload(6, concurrency=(3,), max_new_tokens=12, stream=True)
    with TimedServer(TimedPlan(pattern=(2, 0, 1), step_s=0.002)) as server:
        cell = measure_cell(server.url, workload, 3, failure_now=lambda: None)
        written = {text: len(times) - 1 for text, times in server.seen.times_s.items()}
    assert isinstance(cell, CellObservation)
    assert [row.chunk_tokens for row in cell.rows] == [(1, 3, 1, 2, 3, 1, 1)] * 6
    assert set(written.values()) == {7}
    assert all(row.chunk_times_s == tuple(sorted(row.chunk_times_s)) for row in cell.rows)
    assert all(0 <= row.sent_s < row.chunk_times_s[0] < row.finished_s <= cell.duration_s for row in cell.rows)


def test_what_the_work_raises_is_raised_and_its_loop_closed() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def fail() -> None:
        loops.append(asyncio.get_running_loop())
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        event_loop.run_to_end(fail())
    assert loops[0].is_closed()
