"""The long points on real servers: many settings switched and fresh, traced and measured, at two TP sizes.

Writes `benchmarks/results/switch_and_trace.json`. Throughput is compared with what two fresh launches of one setting
differ by. The machine should have nothing else to do.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_servers import DEFAULT, TRAINED, Took, ask_all, config, demo_spec, demo_workload, launched, running

from actors.engines.switching_server import SwitchingServer
from actors.load.workload import Workload
from actors.tracing import TraceOutcome, TraceRequest, trace_workload, tracing_config
from benchmarks.result_file import write_result
from results.noise import noise_floor
from results.surface import replay_trace
from results.traces import Trace
from search_spaces.config import EngineConfig, Triple

pytestmark = [pytest.mark.server, pytest.mark.evidence, pytest.mark.timeout(7200)]

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "switch_and_trace.json"
COMMAND = "python -m pytest -m evidence tests/actors/engines/test_switching_evidence.py"
POOLS = Triple(num_steps=5, eagle_topk=8, num_draft_tokens=32)
TRIPLES = [(1, 1, 2), (3, 1, 4), (5, 1, 6), (3, 2, 8), (5, 2, 16), (3, 4, 8), (5, 4, 32), (2, 8, 16), (5, 8, 32)]
SETTINGS = [
    *[(layout, triple, 1) for layout in (TRAINED, DEFAULT) for triple in TRIPLES],
    *[(TRAINED, triple, 2) for triple in [(3, 1, 4), (3, 2, 8), (3, 4, 8), (5, 4, 32), (2, 8, 16)]],
    (DEFAULT, (3, 4, 8), 2),
]
LAUNCHED_TWICE = 4
"""Every fourth setting, for the noise between launches."""


def test_switched_as_fresh_and_predicted_as_measured(tmp_path: Path) -> None:
    load = demo_workload(prompts=8, tokens=64)
    rows: list[dict[str, Any]] = []
    for tp_size in (1, 2):
        server = SwitchingServer(demo_spec(tmp_path / f"switching-{tp_size}"), pools=POOLS)
        try:
            started = time.monotonic()
            launched(server.apply(config(TRAINED, (5, 8, 32), tp_size)))
            launch_s = time.monotonic() - started
            traces = {key: _trace(server, load, tmp_path, *key, tp_size=tp_size) for key in _traced(tp_size)}
            for layout, triple, _ in [setting for setting in SETTINGS if setting[2] == tp_size]:
                switched = launched(server.apply(config(layout, triple, tp_size)))
                one, speed = _timed(server.base_url, load)
                eight = ask_all(server.base_url, load, at_once=8)
                fresh, *speeds = _fresh(tmp_path, load, config(layout, triple, tp_size))
                if len(rows) % LAUNCHED_TWICE == 0:
                    speeds += _fresh(tmp_path, load, config(layout, triple, tp_size))[1:]
                predicted = _predicted(traces[layout, triple[1]], triple)
                row = {
                    "layout": list(layout),
                    "triple": list(triple),
                    "tp_size": tp_size,
                    "switch_s": switched.switch_s,
                    "launch_s": launch_s,
                    "tokens_per_s": speed,
                    "tokens_per_s_fresh": speeds,
                    "rounds": sum(took.verify_steps for took in one.values()),
                    "rounds_fresh": sum(took.verify_steps for took in fresh.values()),
                    "rounds_predicted": sum(steps for steps, _ in predicted.values()),
                    "rounds_eight_at_once": sum(took.verify_steps for took in eight.values()),
                    "equal_to_fresh": one == fresh,
                    "equal_to_prediction": {k: (t.verify_steps, t.histogram) for k, t in one.items()} == predicted,
                }
                rows.append(row)
                floor = noise_floor([row["tokens_per_s_fresh"] for row in rows])
                within = [abs(_log_ratio(row)) <= floor.half_width(1, len(row["tokens_per_s_fresh"])) for row in rows]
                found = {
                    "prompts": len(load.prompts),
                    "noise_floor": str(floor),
                    "within_the_floor": sum(within),
                    "median_throughput_ratio": math.exp(statistics.median(_log_ratio(row) for row in rows)),
                    "median_switch_over_launch": statistics.median(row["switch_s"] / row["launch_s"] for row in rows),
                    "rows": rows,
                }
                write_result(RESULTS, command=COMMAND, content=found)
        finally:
            server.close()
    assert len(rows) >= 24
    assert all(row["equal_to_fresh"] for row in rows)
    assert all(row["equal_to_prediction"] for row in rows)
    assert all(abs(row["rounds_eight_at_once"] / row["rounds_predicted"] - 1) <= 0.005 for row in rows)
    assert statistics.median(row["switch_s"] / row["launch_s"] for row in rows) <= 0.1
    # 95 of 100 launches differ by less than the floor; of 24 settings two or more outside it would be no surprise
    assert sum(within) >= 0.85 * len(rows)
    assert abs(statistics.median(_log_ratio(row) for row in rows)) <= floor.relative


def _log_ratio(row: dict[str, Any]) -> float:
    """Switched over fresh."""
    return math.log(row["tokens_per_s"] / statistics.mean(row["tokens_per_s_fresh"]))


def _timed(base_url: str, load: Workload) -> tuple[dict[str, Took], float]:
    """Answers one at a time, and output tokens per second over a second pass: the first one warms the server."""
    answers = ask_all(base_url, load)
    started = time.monotonic()
    again = ask_all(base_url, load)
    seconds = time.monotonic() - started
    return answers, sum(len(took.output_ids) for took in again.values()) / seconds


def _traced(tp_size: int) -> list[tuple[tuple[int, ...], int]]:
    return sorted({(layout, triple[1]) for layout, triple, size in SETTINGS if size == tp_size})


def _trace(
    server: SwitchingServer, load: Workload, tmp_path: Path, layout: tuple[int, ...], topk: int, *, tp_size: int
) -> Trace:
    request = TraceRequest(
        config=tracing_config(config(layout, (1, 1, 2), tp_size), num_steps=5, eagle_topk=topk),
        workload=load,
        concurrency=8,
        ties="libstdcxx",
        vocabulary=demo_spec(tmp_path / "unused").target.vocab_size,
    )
    outcome = trace_workload(server, request, tmp_path / "traces")
    assert isinstance(outcome, TraceOutcome), outcome
    return Trace(outcome.folder)


def _fresh(tmp_path: Path, load: Workload, wanted: EngineConfig) -> tuple[dict[str, Took], float]:
    with running(demo_spec(tmp_path / "fresh"), wanted) as server:
        return _timed(server.base_url, load)


def _predicted(trace: Trace, triple: tuple[int, int, int]) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Verify steps and histogram by prompt."""
    setting = Triple(num_steps=triple[0], eagle_topk=triple[1], num_draft_tokens=triple[2])
    replayed, _ = replay_trace(trace, [setting])
    return {
        prompt.prompt_id: (
            int(replayed.rounds[0, i]),
            tuple(np.trim_zeros(replayed.histogram[0, i], "b").tolist()),
        )
        for i, prompt in enumerate(trace.prompts)
    }
