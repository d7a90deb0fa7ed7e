"""Truth for the search benchmark: exact surfaces of real traces, and round times of real servers.

    python benchmarks/measure_search_truth.py --pair FOLDER --prompts FILE --work FOLDER \
        --out benchmarks/data/search_truth.json

`--pair` holds `target` and `draft`. Two servers are started, tp 1 and tp 2; each is switched through all that it
measures. Rounds are timed in several passes over the settings, each in another order. Traces go to `--work` and are
continued there when the script is run again; `--surface` takes them from an earlier output.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from live_servers import demo_spec, demo_texts, greedy_workload

from actors.engines.switching_server import SwitchingServer
from actors.load.measurement import measure_cell
from actors.load.workload import Workload
from actors.tracing import TraceRequest, trace_workload, tracing_config
from results.cells import summarise_cell
from results.failures import Failure
from results.step_samples import step_sample
from results.surface import legal_triples, surface_of
from results.switched_counters import with_switched_counters
from results.traces import Trace
from search_spaces.config import EngineConfig, Triple, layout_label

LAYOUTS = ((0, 3, 7), (2, 4, 5))
TOPKS, STEPS = (1, 2, 4, 8), 8
SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
CONCURRENCIES = (1, 4, 8)
TIMED = [
    *[(1, 1, 2), (2, 1, 3), (3, 1, 4), (5, 1, 6), (8, 1, 9)],
    *[(1, 2, 3), (2, 2, 4), (3, 2, 8), (5, 2, 12), (8, 2, 24)],
    *[(1, 4, 4), (2, 4, 8), (3, 4, 16), (5, 4, 8), (5, 4, 32), (8, 4, 16), (8, 4, 64)],
    *[(1, 8, 8), (2, 8, 32), (3, 8, 8), (3, 8, 48), (5, 8, 16), (5, 8, 64), (8, 8, 24), (8, 8, 64)],
    *[(4, 1, 5), (6, 1, 7), (4, 2, 6), (6, 2, 16), (7, 2, 8), (3, 4, 6), (4, 4, 24), (6, 4, 12), (7, 4, 48)],
    *[(4, 8, 12), (6, 8, 32), (7, 8, 8)],
]
POOLS = Triple(num_steps=8, eagle_topk=8, num_draft_tokens=64)


def main() -> None:
    asked = arguments()
    traced, timed = (
        greedy_workload(demo_texts(count, asked.prompts), tokens, request_timeout_s=600.0)
        for count, tokens in ((asked.count, 96), (asked.timed_count, 48))
    )
    started = time.time()
    content: dict[str, object] = {"surface": [], "tp2_rounds_differ": None, "step_times": [], "launches": []}
    surface_rows: list[dict[str, object]] = []
    if asked.surface:
        earlier = json.loads(asked.surface.read_text())
        surface_rows, content["tp2_rounds_differ"] = earlier["surface"], earlier["tp2_rounds_differ"]
    for tp_size in (1, 2):
        engine = make_engine(asked, tp_size)
        try:
            before = time.monotonic()
            first = EngineConfig(layout=LAYOUTS[0], triple=POOLS, tp_size=tp_size)
            must(engine.apply(first))
            content["launches"] += [{"tp_size": tp_size, "seconds": time.monotonic() - before}]  # type: ignore[operator]
            for number in range(asked.passes):
                content["step_times"] += time_rounds(engine, timed, tp_size, number)  # type: ignore[operator]
                save(asked.out, content | {"surface": surface_rows}, started)
            if asked.surface:
                continue
            for layout in LAYOUTS if tp_size == 1 else LAYOUTS[:1]:
                for topk in TOPKS if tp_size == 1 else (4,):
                    rows = trace_rows(engine, traced, asked.work, layout=layout, topk=topk, tp_size=tp_size)
                    if tp_size == 1:
                        surface_rows += rows
                    else:
                        content["tp2_rounds_differ"] = differing(rows, surface_rows)
                    save(asked.out, content | {"surface": surface_rows}, started)
        finally:
            engine.close()


def differing(rows: list[dict[str, object]], others: list[dict[str, object]]) -> int:
    """How many settings take another number of rounds at the second TP size."""
    names = ("layout", "eagle_topk", "num_steps", "num_draft_tokens")
    rounds = {tuple(row[name] for name in names): row["rounds"] for row in others}
    return sum(rounds[tuple(row[name] for name in names)] != row["rounds"] for row in rows)


def trace_rows(
    engine: SwitchingServer, load: Workload, work: Path, *, layout: tuple[int, ...], topk: int, tp_size: int
) -> list[dict[str, object]]:
    before = time.monotonic()
    config = tracing_config(
        EngineConfig(layout=layout, triple=POOLS, tp_size=tp_size), num_steps=STEPS, eagle_topk=topk
    )
    request = TraceRequest(
        config=config, workload=load, concurrency=8, ties="libstdcxx", vocabulary=engine_vocabulary(engine)
    )
    outcome = trace_workload(engine, request, work / "traces")
    if isinstance(outcome, Failure):
        raise SystemExit(f"{layout_label(layout)} topk {topk}: {outcome.message}")
    points = surface_of(Trace(outcome.folder), legal_triples(STEPS, topk, SIZES))
    print(
        f"traced {layout_label(layout)} topk {topk} in {time.monotonic() - before:.0f} s", outcome.problems, flush=True
    )
    return [
        {
            "layout": layout_label(layout),
            "eagle_topk": topk,
            "num_steps": point.triple.num_steps,
            "num_draft_tokens": point.triple.num_draft_tokens,
            "rounds": point.rounds,
            "rounds_by_prompt": list(point.rounds_by_prompt),
            "tokens_by_prompt": list(point.tokens_by_prompt),
        }
        for point in points
    ]


def time_rounds(engine: SwitchingServer, load: Workload, tp_size: int, number: int) -> list[dict[str, object]]:
    """One pass over the settings, in an order of its own."""
    rows: list[dict[str, object]] = []
    for numbers in random.Random(10 * tp_size + number).sample(TIMED, len(TIMED)):
        triple = Triple(num_steps=numbers[0], eagle_topk=numbers[1], num_draft_tokens=numbers[2])
        launched = engine.apply(EngineConfig(layout=LAYOUTS[0], triple=triple, tp_size=tp_size))
        if isinstance(launched, Failure):
            raise SystemExit(f"{triple}: {launched.message}")
        for concurrency in CONCURRENCIES:
            cell = measure_cell(engine.base_url, load, concurrency, failure_now=engine.failure_now)
            if isinstance(cell, Failure):
                raise SystemExit(f"{triple}: {cell.message}")
            summary = summarise_cell(with_switched_counters(cell, launched, triple), triple)
            sample = step_sample(summary, triple, tp_size)
            assert sample is not None
            rows.append(
                {
                    "batch": sample.batch,
                    "concurrency": concurrency,
                    "num_steps": triple.num_steps,
                    "eagle_topk": triple.eagle_topk,
                    "num_draft_tokens": triple.num_draft_tokens,
                    "tp_size": tp_size,
                    "pass": number,
                    "step_s": sample.step_s,
                    "cell_s": cell.duration_s,
                    "switch_s": launched.switch_s,
                }
            )
        print(
            f"timed {triple} tp {tp_size} pass {number}:",
            [round(1e3 * row["step_s"], 2) for row in rows[-3:]],
            flush=True,
        )  # type: ignore[operator]
    return rows


def make_engine(asked: argparse.Namespace, tp_size: int) -> SwitchingServer:
    spec = demo_spec(
        asked.work / f"tp{tp_size}",
        asked.pair,
        args={"max_total_tokens": 16384},
        max_running_requests=8,
        sweep_id=f"search-truth-{asked.work.name}",
        slot=f"tp{tp_size}",
    )
    engine = SwitchingServer(spec, pools=POOLS)
    VOCABULARIES[id(engine)] = spec.target.vocab_size
    return engine


VOCABULARIES: dict[int, int] = {}


def engine_vocabulary(engine: SwitchingServer) -> int:
    return VOCABULARIES[id(engine)]


def must(outcome: object) -> None:
    if isinstance(outcome, Failure):
        raise SystemExit(f"{outcome.message}\n{outcome.log_tail[-2000:]}")


def save(out: Path, content: dict[str, object], started: float) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    machine = {"platform": platform.platform(), "python": platform.python_version(), "accelerator": "CPU, 2 cores"}
    out.write_text(json.dumps({"machine": machine, "started_at_unix_s": started, **content}) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--count", type=int, default=16, help="prompts to trace")
    parser.add_argument("--timed-count", type=int, default=8, help="prompts to time with")
    parser.add_argument("--passes", type=int, default=2, help="how often each setting is timed")
    parser.add_argument("--surface", type=Path, help="take the traces' results from this earlier output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
