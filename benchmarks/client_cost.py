"""What the load client costs: CPU time per wall time at 64 concurrent streams of 50 tokens per second each.

    python benchmarks/client_cost.py [--seconds 10] [--out benchmarks/results/client_cost.json]

The server is the tests' timed double, in a process of its own, so that only the client is counted. Cost is this
process's CPU time (user and system, all threads, connecting and flushing included) per event, times the events per
second of 64 streams at exactly 50 tokens/s: 1.0 is one core kept busy. Of several repeats the cheapest counts, because
what else runs on the machine can only add. Four kinds of streams: one token per event (no speculation), two to three
per event, events that carry only what is new, and one token per event with all streams in step, as a server's batch
sends them. The steps of the others are jittered, so that hardly two events arrive together, which is the worst case.
The target is 0.10. Beside it, in turns, what an epoll loop costs that reads the same streams and looks at nothing: what
is left of the target is what a client may do with an event.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from actors.load.event_loop import new_event_loop
from actors.load.measurement import measure_cell
from actors.load.workload import Workload, prompt_of
from benchmarks.bare_reader import read_bare
from benchmarks.result_file import write_result
from results.observations import CellObservation

STREAMS = 64
TOKENS_PER_S = 50.0
PROMPTS = [f"prompt number {number} of the cost benchmark" for number in range(STREAMS)]
KINDS: dict[str, dict[str, object]] = {
    "one token per event": {"step_s": 1 / TOKENS_PER_S},
    "2.5 tokens per event": {"step_s": 2.5 / TOKENS_PER_S, "pattern": [1, 2]},
    "one token per event, incremental": {"step_s": 1 / TOKENS_PER_S, "incremental": True},
    "one token per event, in step": {"step_s": 1 / TOKENS_PER_S, "jitter": 0.0},
}


def measure_kind(plan: dict[str, object], seconds: float, repeats: int) -> dict[str, object]:
    """Our client and the bare reader in turns, each on a server of its own; the cheapest run of each, and all."""
    tokens = int(seconds * TOKENS_PER_S)
    runs, bare = [], []
    for _ in range(repeats):
        with timed_server(plan) as port:
            runs.append(measure_client(port, tokens))
        with timed_server(plan) as port:
            bare.append(measure_bare_reader(port, tokens))
    return {
        **min(runs, key=lambda run: run["cores"]),
        "cores_of_all": [run["cores"] for run in runs],
        "bare_reader_cores": min(bare),
        "bare_reader_cores_of_all": bare,
    }


def measure_client(port: int, tokens: int) -> dict[str, float]:
    """One cell of 64 requests, all in flight at once, and what it cost this process."""
    workload = Workload(
        prompts=tuple(prompt_of(prompt) for prompt in PROMPTS),
        warmup=(),
        concurrency=(STREAMS,),
        max_new_tokens=tokens,
        temperature=0.0,
        ignore_eos=True,
        stream=True,
        request_timeout_s=600.0,
        max_attempts=1,
    )
    began_cpu_s, began_s = time.process_time(), time.perf_counter()
    cell = measure_cell(f"http://127.0.0.1:{port}", workload, STREAMS, failure_now=lambda: None)
    cpu_s, wall_s = time.process_time() - began_cpu_s, time.perf_counter() - began_s
    assert isinstance(cell, CellObservation), cell
    assert all(row.completion_tokens == tokens for row in cell.rows)
    events = sum(len(row.chunk_tokens) for row in cell.rows)
    return {
        "cores": cores_of(cpu_s, tokens),
        "cores_during_the_run": round(cpu_s / wall_s, 4),
        "cpu_us_per_event": round(cpu_s / events * 1e6, 1),
        "tokens_per_s_per_stream": round(tokens / max(row.finished_s - row.sent_s for row in cell.rows), 2),
        "events": events,
    }


def measure_bare_reader(port: int, tokens: int) -> float:
    """Cores that the same streams keep busy when nothing is done with what arrives."""
    began_cpu_s = time.process_time()
    read_bare(port, PROMPTS, tokens)
    return cores_of(time.process_time() - began_cpu_s, tokens)


def cores_of(cpu_s: float, tokens: int) -> float:
    """CPU time of answers of so many tokens, for the time that they take at exactly `TOKENS_PER_S`."""
    return round(cpu_s * TOKENS_PER_S / tokens, 4)


@contextmanager
def timed_server(plan: dict[str, object]) -> Iterator[int]:
    """The tests' double in a process of its own; its port."""
    double = Path(__file__).resolve().parent.parent / "tests" / "doubles" / "timed_server.py"
    plan_json = json.dumps({"ttft_s": 0.2, "jitter": 0.2, **plan})
    with subprocess.Popen([sys.executable, str(double), plan_json], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["port"]
        finally:
            server.terminate()


def main() -> None:
    """Measure every kind and print or write the result."""
    parser = argparse.ArgumentParser(description="The load client's CPU cost at 64 streams of 50 tokens/s.")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of every stream")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    busy = round(os.getloadavg()[0], 2)
    content = {
        "streams": STREAMS,
        "tokens_per_s": TOKENS_PER_S,
        "seconds": args.seconds,
        "repeats": args.repeats,
        "target_cores": 0.10,
        "load_average_before": busy,
        "event_loop": f"{new_event_loop.__module__} {version('uvloop')}",
        "kinds": {name: measure_kind(plan, args.seconds, args.repeats) for name, plan in KINDS.items()},
    }
    print(json.dumps(content, indent=2))
    if args.out:
        command = shlex.join(["python", "benchmarks/client_cost.py", *sys.argv[1:]])
        write_result(args.out, command=command, content=content)


if __name__ == "__main__":
    main()
