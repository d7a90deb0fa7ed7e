"""What a surface costs: 100,000 positions of 264 candidates (5 steps, topk 8) x 200 settings, on one core.

    python benchmarks/surface_speed.py [--out benchmarks/results/surface_speed.json]

The trace is made up (random candidates of which the target says some) and read from the disk as a real one. Counted:
CPU and wall seconds from opening the trace to the last interval, and how far the process's memory went up. Limits:
60 s and 2 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.result_file import write_result
from results.pool_trace_file import pool_sizes, record_type
from results.surface import legal_triples, surface_of
from results.traces import Trace, TracedPrompt, TraceFacts, append_prompts, write_facts

STEPS, TOPK, PROMPTS, TOKENS, PROMPT_TOKENS, SETTINGS = 5, 8, 200, 501, 50, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder))
        before = memory_mib()
        cpu, wall = time.process_time(), time.perf_counter()
        trace = Trace(Path(folder))
        points = surface_of(trace, legal_triples(STEPS, TOPK)[:SETTINGS])
        row = {
            "positions": PROMPTS * (TOKENS - 1),
            "settings": len(points),
            "nodes": pool_sizes(STEPS, TOPK)[0],
            "cpu_s": round(time.process_time() - cpu, 2),
            "wall_s": round(time.perf_counter() - wall, 2),
            "memory_mib": round(memory_mib() - before),
            "peak_memory_mib": round(memory_mib()),
            "accept_lengths": [round(f(p.accept_length.value for p in points), 3) for f in (min, max)],
        }
    print(json.dumps(row))
    if asked.out:
        write_result(asked.out, command="python benchmarks/surface_speed.py", content=row)


def write_trace(folder: Path) -> None:
    """Level by level: the children of a step are those of the topk best candidates of the step before."""
    rng = np.random.default_rng(0)
    facts = TraceFacts(
        layout=(2, 4, 5), tp_size=1, eagle_topk=TOPK, num_steps=STEPS, workload_id="made-up", ties="libstdcxx"
    )
    write_facts(folder, facts)
    nodes, parents = pool_sizes(STEPS, TOPK)
    header = {"version": 1, "num_steps": STEPS, "eagle_topk": TOPK, "nodes": nodes, "parents": parents}
    prompts = []
    with (folder / "0001.pools").open("wb") as file, (folder / "0001.pools.requests").open("w") as index:
        file.write(json.dumps(header).encode() + b"\n")
        for number in range(PROMPTS):
            text = rng.integers(0, 10, TOKENS + STEPS)
            file.write(pools(rng, number, TOKENS - 1).tobytes())
            index.write(json.dumps({"index": number, "rid": f"r{number}"}) + "\n")
            prompts.append(
                TracedPrompt(
                    prompt_id=f"p{number}",
                    request_id=f"r{number}",
                    segment="0001.pools",
                    prompt_tokens=PROMPT_TOKENS,
                    length=TOKENS,
                    output_ids=tuple(text.tolist()),
                )
            )
    append_prompts(folder, prompts)


def pools(rng: np.random.Generator, request: int, count: int) -> np.ndarray:
    records = np.zeros(count, dtype=record_type(STEPS, TOPK))
    records["request"], records["position"] = request, PROMPT_TOKENS + np.arange(count)
    groups = rng.random((count, records["tokens"].shape[1] // TOPK, 10)).argsort(axis=2)[:, :, :TOPK]
    records["tokens"] = groups.reshape(count, -1)
    records["parents"][:, 0] = -1
    chances = np.sort(rng.random((count, TOPK)).astype(np.float32), axis=1)[:, ::-1]
    records["scores"][:, :TOPK] = level = chances
    best, start = np.tile(np.arange(TOPK), (count, 1)), TOPK
    for step in range(1, STEPS):
        records["parents"][:, 1 + (step - 1) * TOPK : 1 + step * TOPK] = best
        chances = np.sort(rng.random((count, TOPK, TOPK)).astype(np.float32), axis=2)[:, :, ::-1]
        level = (level[:, :, None] * chances).reshape(count, -1)
        records["scores"][:, start : start + TOPK**2] = level
        order = np.argsort(-level, axis=1, kind="stable")[:, :TOPK]
        level, best, start = np.take_along_axis(level, order, axis=1), order + start, start + TOPK**2
    return records


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
