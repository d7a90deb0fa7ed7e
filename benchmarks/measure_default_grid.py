"""The product of SGLang's default values, each setting measured on a fresh launch: data for `default_grid.py`.

    python benchmarks/measure_default_grid.py --pair FOLDER --prompts FILE --work FOLDER [--minutes 9]

s in 1, 3, 5, 7; k in 1, 2, 4, 8; n in 2, 4, 8, 16, 32: 36 distinct settings that SGLang 0.5.23 can run, each at three
concurrencies; the baseline; a few settings launched a second time (the noise between launches); two that start and
die at their first verify step (fewer draft tokens than steps + 1: how long that takes); what a traced and switched
server costs (launch, traces, switches). The file is replaced after every launch, and what it holds is not measured
again: run the script as often as it takes, `--minutes` at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from actors.end_tokens import end_ids_of
from actors.engines.engine import Engine
from actors.engines.preflight import find_engine
from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from actors.engines.switching_server import SwitchingServer
from actors.load.measurement import measure_cell, warm_up
from actors.load.workload import Workload, prompt_of
from actors.tracing import TraceRequest, trace_workload, tracing_config
from benchmarks.machine import machine
from results.cells import summarise_cell
from results.durable_files import replace_file
from results.failures import Failure
from results.surface import legal_triples, surface_of
from results.traces import Trace
from search_spaces.checkpoints import read_draft, read_target
from search_spaces.config import EngineConfig, Triple

STEPS, TOPKS, TOKENS = (1, 3, 5, 7), (1, 2, 4, 8), (2, 4, 8, 16, 32)
CONCURRENCIES = (1, 4, 8)
LAYOUT = (0, 3, 7)
REPEAT_EVERY = 9
"""Every ninth setting is launched once more."""

DYING = (Triple(num_steps=3, eagle_topk=2, num_draft_tokens=2), Triple(num_steps=7, eagle_topk=8, num_draft_tokens=4))

POOLS = Triple(num_steps=max(STEPS), eagle_topk=max(TOPKS), num_draft_tokens=max(TOKENS))


def grid() -> list[Triple]:
    """The 36 settings, in the order of SGLang's own loop: steps, then topk, then draft tokens."""
    found = [triple for topk in TOPKS for triple in legal_triples(max(STEPS), topk, TOKENS)]
    return sorted(triple for triple in found if triple.num_steps in STEPS)


def to_do(content: dict[str, Any]) -> Iterator[tuple[str, Triple | None, int]]:
    """What the file does not hold yet, as (kind, triple, turn)."""
    done = {(row["kind"], row["triple"], row["turn"]) for row in content["launches"]}
    wanted: list[tuple[str, Triple | None, int]] = [("baseline", None, 0)]
    wanted += [("fresh", triple, 0) for triple in grid()]
    wanted += [("fresh", triple, 1) for triple in grid()[::REPEAT_EVERY]]
    wanted += [("dying", triple, 0) for triple in DYING]
    for kind, triple, turn in wanted:
        if (kind, None if triple is None else str(triple), turn) not in done:
            yield kind, triple, turn


def main() -> None:
    asked = arguments()
    deadline = time.monotonic() + 60 * asked.minutes
    content: dict[str, Any] = {
        "machine": machine("sglang"),
        "concurrencies": list(CONCURRENCIES),
        "prompts": asked.count,
        "max_new_tokens": asked.tokens,
        "launches": [],
        "surface": [],
        "tracing": None,
    }
    if asked.out.exists():
        content |= json.loads(asked.out.read_text())
    load = workload(asked)
    for kind, triple, turn in to_do(content):
        if time.monotonic() > deadline:
            break
        row = (
            watch_dying(asked, load, triple) if kind == "dying" and triple else measure(asked, load, kind, triple, turn)
        )
        content["launches"].append(row)
        save(asked.out, content)
        print(kind, triple, turn, row["launch_s"], [cell["throughput"] for cell in row["cells"]], flush=True)
    if content["tracing"] is None and time.monotonic() < deadline:
        content |= trace(asked, load)
        save(asked.out, content)
    left = len(list(to_do(content))) + (content["tracing"] is None)
    print(f"{left} launches left" if left else "complete", flush=True)


def measure(asked: argparse.Namespace, load: Workload, kind: str, triple: Triple | None, turn: int) -> dict[str, Any]:
    """One launch and a cell at each concurrency."""
    engine = SglangServer(server_spec(asked))
    try:
        started = time.monotonic()
        layout = None if triple is None else LAYOUT
        must(engine.apply(EngineConfig(layout=layout, triple=triple, tp_size=1)))
        launch_s = time.monotonic() - started
        must(warm_up(engine.base_url, load, failure_now=engine.failure_now))
        cells = [cell(engine, load, triple, concurrency) for concurrency in CONCURRENCIES]
        return {
            "kind": kind,
            "triple": None if triple is None else str(triple),
            "turn": turn,
            "launch_s": round(launch_s, 3),
            "measured_s": round(time.monotonic() - started - launch_s, 3),
            "cells": cells,
        }
    finally:
        engine.close()


def watch_dying(asked: argparse.Namespace, load: Workload, triple: Triple) -> dict[str, Any]:
    """Seconds until a setting that cannot run has been seen to fail, at its start or at the first requests."""
    engine = SglangServer(server_spec(asked))
    try:
        started = time.monotonic()
        failed: object = engine.apply(EngineConfig(layout=LAYOUT, triple=triple, tp_size=1))
        if not isinstance(failed, Failure):
            failed = warm_up(engine.base_url, load, failure_now=engine.failure_now)
        if not isinstance(failed, Failure):
            raise SystemExit(f"{triple}: runs")
        seconds = round(time.monotonic() - started, 3)
    finally:
        engine.close()
    return {
        "kind": "dying",
        "triple": str(triple),
        "turn": 0,
        "launch_s": seconds,
        "measured_s": 0.0,
        "cells": [],
        "failure": failed.message,
    }


def cell(engine: Engine, load: Workload, triple: Triple | None, concurrency: int) -> dict[str, Any]:
    started = time.monotonic()
    observed = measure_cell(engine.base_url, load, concurrency, failure_now=engine.failure_now)
    if isinstance(observed, Failure):
        raise SystemExit(f"{triple}: {observed.message}")
    found = summarise_cell(observed, triple)
    assert found.output_throughput is not None
    return {
        "concurrency": concurrency,
        "throughput": round(found.output_throughput.value, 4),
        "low": round(found.output_throughput.low, 4),
        "high": round(found.output_throughput.high, 4),
        "accept_length": None if found.accept_length is None else round(found.accept_length.value, 6),
        "seconds": round(time.monotonic() - started, 3),
    }


def trace(asked: argparse.Namespace, load: Workload) -> dict[str, Any]:
    """Every topk traced on one switched server, what that took, and the surface that follows."""
    spec = server_spec(asked)
    engine = SwitchingServer(spec, pools=POOLS)
    surface: list[dict[str, Any]] = []
    traces: list[dict[str, Any]] = []
    try:
        started = time.monotonic()
        must(engine.apply(EngineConfig(layout=LAYOUT, triple=POOLS, tp_size=1)))
        launch_s = time.monotonic() - started
        switches = []
        for topk in TOPKS:
            before = time.monotonic()
            request = TraceRequest(
                config=tracing_config(
                    EngineConfig(layout=LAYOUT, triple=POOLS, tp_size=1), num_steps=max(STEPS), eagle_topk=topk
                ),
                workload=load,
                concurrency=max(CONCURRENCIES),
                ties="libstdcxx",
                vocabulary=spec.target.vocab_size,
                end_ids=end_ids_of(spec.target),
            )
            outcome = trace_workload(engine, request, asked.work / "traces")
            if isinstance(outcome, Failure):
                raise SystemExit(f"topk {topk}: {outcome.message}")
            traces.append({"eagle_topk": topk, "seconds": round(time.monotonic() - before, 3)})
            wanted = [triple for triple in grid() if triple.eagle_topk == topk]
            surface += [
                {"triple": str(point.triple), "accept_length": point.accept_length.value}
                for point in surface_of(Trace(outcome.folder), wanted)
            ]
        for triple in grid()[::4]:
            switched = engine.apply(EngineConfig(layout=LAYOUT, triple=triple, tp_size=1))
            if isinstance(switched, Failure) or switched.switch_s is None:
                raise SystemExit(f"{triple}: was not switched")
            switches.append(round(switched.switch_s, 4))
    finally:
        engine.close()
    return {
        "surface": surface,
        "tracing": {"launch_s": round(launch_s, 3), "traces": traces, "switch_s": switches},
    }


def server_spec(asked: argparse.Namespace) -> ServerSpec:
    found = find_engine(sys.executable)
    return ServerSpec(
        target=read_target(asked.pair / "target"),
        draft=read_draft(asked.pair / "draft"),
        sglang_version=found.version,
        device="cpu",
        work_dir=asked.work / "server",
        sweep_id="default-grid",
        slot="group0",
        stand_ins=found.stand_ins("cpu"),
        start_method=asked.start_method,
        args={"context_length": 512, "max_total_tokens": 16384},
        max_running_requests=max(CONCURRENCIES),
    )


def workload(asked: argparse.Namespace) -> Workload:
    texts = list(dict.fromkeys(json.loads(line)["text"] for line in asked.prompts.read_text().splitlines()))
    return Workload(
        prompts=tuple(prompt_of(text) for text in texts[: asked.count]),
        warmup=tuple(prompt_of(text) for text in texts[asked.count : asked.count + 2]),
        concurrency=CONCURRENCIES,
        max_new_tokens=asked.tokens,
        temperature=0,
        ignore_eos=True,
        stream=False,
        request_timeout_s=600,
        max_attempts=1,
    )


def must(outcome: object) -> None:
    if isinstance(outcome, Failure):
        raise SystemExit(f"{outcome.message}\n{outcome.log_tail[-2000:]}")


def save(out: Path, content: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, (json.dumps(content, indent=1) + "\n").encode())


def arguments() -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=here / "data" / "default_grid.json")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no further launch after so long")
    parser.add_argument("--count", type=int, default=16, help="prompts")
    parser.add_argument("--tokens", type=int, default=64, help="tokens a request")
    parser.add_argument("--start-method", choices=["spawn", "fork"], default="spawn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
