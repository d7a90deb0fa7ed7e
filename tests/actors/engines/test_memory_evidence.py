"""The long points on memory, on real servers: a long trace, and fifty switches in a row at two TP sizes.

Writes `benchmarks/results/memory.json`. Memory is that of all the server's processes; a first round, in which
everything was run once, is not counted. Judged is the anonymous memory: how much of a library's pages is counted to a
process depends on who else on the machine has mapped them at that moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from live_servers import (
    DEFAULT,
    TRAINED,
    ask_all,
    config,
    demo_spec,
    demo_texts,
    demo_workload,
    greedy_workload,
    launched,
)
from process_memory import MB, Memory, memory_of, watching

from actors.engines.switching_server import SwitchingServer
from actors.tracing import TraceOutcome, TraceRequest, trace_workload, tracing_config
from benchmarks.result_file import write_section
from results.pool_trace_file import PoolTraceFile, record_type
from search_spaces.config import EngineConfig, Triple

pytestmark = [pytest.mark.server, pytest.mark.evidence, pytest.mark.timeout(7200)]

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "memory.json"
COMMAND = "python -m pytest -m evidence tests/actors/engines/test_memory_evidence.py"
POOLS = Triple(num_steps=5, eagle_topk=8, num_draft_tokens=32)
TRIPLES = [
    *[(1, 1, 2), (3, 1, 4), (5, 1, 6), (3, 2, 8), (5, 2, 16), (4, 3, 10), (3, 4, 8)],
    *[(5, 4, 32), (3, 5, 12), (3, 6, 14), (2, 7, 9), (2, 8, 16), (5, 8, 32)],
]
SWITCHES, SWITCHES_LIMIT_MB, TRACE_LIMIT_MB = 50, 50, 200
POSITIONS = 20_000
KEPT_SHARE = 1 / 3
"""Of what went to the disk: a server that kept its pools would grow by all of it, and more."""
ANSWER, WARM_UP_PROMPTS, TRACED_AT_ONCE = 384, 16, 16


@pytest.mark.parametrize(("tp_size", "triples"), [(1, TRIPLES), (2, TRIPLES[::3])])
def test_fifty_switches_leave_the_memory_flat(
    tmp_path: Path, tp_size: int, triples: Sequence[tuple[int, int, int]]
) -> None:
    """Every setting is visited once beforehand; after each switch it serves, so that what it needs is really made."""
    load = demo_workload(prompts=4, tokens=16)
    settings = [config(layout, triple, tp_size) for triple in triples for layout in (TRAINED, DEFAULT)]
    server = SwitchingServer(demo_spec(tmp_path), pools=POOLS)

    def visit(setting: EngineConfig) -> Memory:
        switched = launched(server.apply(setting))
        assert switched.switch_s is not None
        ask_all(server.base_url, load, at_once=4)
        return memory_of(switched.pid)

    try:
        pid = launched(server.apply(config(TRAINED, (5, 8, 32), tp_size))).pid
        first = [visit(setting) for setting in settings[::-1]]
        series = [visit(setting) for setting in itertools.islice(itertools.cycle(settings), SWITCHES)]
        assert launched(server.apply(settings[0])).pid == pid
    finally:
        server.close()
    grown = {name: _grown(first[-1], series, name) for name in ("pss", "anonymous")}
    found: dict[str, Any] = {
        "tp_size": tp_size,
        "settings": len(settings),
        "switches": len(series),
        "grown_mb": grown,
        "limit_mb": SWITCHES_LIMIT_MB,
        "processes": first[-1].processes,
        "pss_mb_first_round": [memory.pss for memory in first],
        "pss_mb": [memory.pss for memory in series],
        "anonymous_mb": [memory.anonymous for memory in series],
    }
    print(found)
    write_section(RESULTS, f"switches_tp{tp_size}", command=COMMAND, content=found)
    assert grown["anonymous"] < SWITCHES_LIMIT_MB


def test_a_long_trace_is_not_held_in_memory(tmp_path: Path) -> None:
    """The server grows by a third of what it writes at most, and by 200 MB in 100,000 positions, which are 225 MB."""
    texts = [f"{first} {second}" for first, second in itertools.permutations(demo_texts(24), 2)]
    count = -(-POSITIONS // ANSWER)
    spec = demo_spec(tmp_path / "work", args={"max_total_tokens": 32768})
    server = SwitchingServer(spec, pools=POOLS)
    wanted = tracing_config(config(TRAINED, (1, 1, 2)), num_steps=5, eagle_topk=8)

    def trace(texts: Sequence[str], name: str) -> TraceOutcome:
        request = TraceRequest(
            config=wanted,
            workload=greedy_workload(texts, ANSWER, request_timeout_s=3600.0),
            concurrency=TRACED_AT_ONCE,
            ties="libstdcxx",
            vocabulary=spec.target.vocab_size,
            prompts_per_segment=len(texts),
        )
        outcome = trace_workload(server, request, tmp_path / name)
        assert isinstance(outcome, TraceOutcome), outcome
        return outcome

    try:
        warm = trace(texts[count : count + WARM_UP_PROMPTS], "warm-up")
        assert warm.launch is not None
        with watching(warm.launch.pid, every_s=2.0) as series:
            traced = trace(texts[:count], "trace")
    finally:
        server.close()
    segments = sorted(traced.folder.glob("*.pools"))
    positions = sum(len(PoolTraceFile(segment).records) for segment in segments)
    on_disk_mb = sum(segment.stat().st_size for segment in segments) / MB
    grown = {name: _grown(series[0], series, name) for name in ("pss", "anonymous")}
    every = max(1, len(series) // 50)
    found: dict[str, Any] = {
        "nodes_per_position": record_type(5, 8)["tokens"].shape[0],
        "positions": positions,
        "prompts": traced.prompts,
        "requests_at_once": TRACED_AT_ONCE,
        "on_disk_mb": round(on_disk_mb, 1),
        "grown_mb": grown,
        "grown_mb_in_100000_positions": round(grown["anonymous"] * 100_000 / positions, 1),
        "limit_mb": TRACE_LIMIT_MB,
        "before": asdict(series[0]),
        "after": asdict(series[-1]),
        "pss_mb": [memory.pss for memory in series[::every]],
        "anonymous_mb": [memory.anonymous for memory in series[::every]],
    }
    print(found)
    write_section(RESULTS, "trace", command=COMMAND, content=found)
    assert traced.prompts == count
    assert positions >= POSITIONS
    assert grown["anonymous"] < KEPT_SHARE * on_disk_mb
    assert found["grown_mb_in_100000_positions"] < TRACE_LIMIT_MB


def _grown(before: Memory, series: Sequence[Memory], name: str) -> float:
    """MB by which the highest of a series is above what was before it."""
    return round(max(getattr(memory, name) for memory in series) - getattr(before, name), 1)
