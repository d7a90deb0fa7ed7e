"""What the load client costs: CPU time per wall time at 64 concurrent streams of 50 tokens per second each.

    python benchmarks/client_cost.py [--seconds 10] [--out benchmarks/results/client_cost.json]

The server is the tests' timed double, in a process of its own, so that only the client is counted. Cost is this
process's CPU time (user and system, all threads, connecting and flushing included) per event, times the events per
second of 64 streams at exactly 50 tokens/s: 1.0 is one core kept busy. Of several repeats the cheapest counts, because
what else runs on the machine can only add. Three kinds of streams: one token per event (no speculation), two to three
per event, and events that carry only what is new. Their steps are jittered, so that hardly two events arrive together,
which is the worst case. The target is 0.10.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from actors.load.measurement import measure_cell
from actors.load.workload import Workload, prompt_of
from benchmarks.machine import machine
from results.observations import CellObservation

STREAMS = 64
TOKENS_PER_S = 50.0
KINDS: dict[str, dict[str, object]] = {
    "one token per event": {"step_s": 1 / TOKENS_PER_S},
    "2.5 tokens per event": {"step_s": 2.5 / TOKENS_PER_S, "pattern": [1, 2]},
    "one token per event, incremental": {"step_s": 1 / TOKENS_PER_S, "incremental": True},
}


def measure(plan: dict[str, object], seconds: float) -> dict[str, float]:
    """One cell of 64 requests, all in flight at once, and what it cost this process."""
    tokens = int(seconds * TOKENS_PER_S)
    workload = Workload(
        prompts=tuple(prompt_of(f"prompt number {number} of the cost benchmark") for number in range(STREAMS)),
        warmup=(),
        concurrency=(STREAMS,),
        max_new_tokens=tokens,
        temperature=0.0,
        ignore_eos=True,
        stream=True,
        request_timeout_s=seconds * 10,
        max_attempts=1,
    )
    double = Path(__file__).resolve().parent.parent / "tests" / "doubles" / "timed_server.py"
    plan_json = json.dumps({"ttft_s": 0.2, "jitter": 0.2, **plan})
    with subprocess.Popen([sys.executable, str(double), plan_json], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
            began_cpu_s, began_s = time.process_time(), time.perf_counter()
            cell = measure_cell(url, workload, STREAMS, failure_now=lambda: None)
            cpu_s, wall_s = time.process_time() - began_cpu_s, time.perf_counter() - began_s
        finally:
            server.terminate()
    assert isinstance(cell, CellObservation), cell
    assert all(row.completion_tokens == tokens for row in cell.rows)
    events = sum(len(row.chunk_tokens) for row in cell.rows)
    return {
        "cores": round(cpu_s * TOKENS_PER_S / tokens, 4),
        "cores_during_the_run": round(cpu_s / wall_s, 4),
        "cpu_us_per_event": round(cpu_s / events * 1e6, 1),
        "tokens_per_s_per_stream": round(tokens / max(row.finished_s - row.sent_s for row in cell.rows), 2),
        "events": events,
    }


def cheapest(plan: dict[str, object], seconds: float, repeats: int) -> dict[str, float]:
    """The run that cost least, with the costs of all."""
    runs = [measure(plan, seconds) for _ in range(repeats)]
    return min(runs, key=lambda run: run["cores"]) | {"cores_of_all": [run["cores"] for run in runs]}  # type: ignore[dict-item]


def main() -> None:
    """Measure every kind and print or write the result."""
    parser = argparse.ArgumentParser(description="The load client's CPU cost at 64 streams of 50 tokens/s.")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of every stream")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    before = machine("aiohttp")
    result = {
        "command": shlex.join(["python", "benchmarks/client_cost.py", *sys.argv[1:]]),
        "streams": STREAMS,
        "tokens_per_s": TOKENS_PER_S,
        "seconds": args.seconds,
        "repeats": args.repeats,
        "machine": before,
        "target_cores": 0.10,
        "kinds": {name: cheapest(plan, args.seconds, args.repeats) for name, plan in KINDS.items()},
    }
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
