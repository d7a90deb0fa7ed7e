"""The same prompts and load through `sglang.bench_serving` and through specsweep, on one real server, interleaved.

    python benchmarks/bench_serving_parity.py [--target DIR --draft DIR --layout 0,3,7 --prompts FILE] [--out FILE]

One server is started once (CPU by default). Each of the pairs sends the same prompts in the same order at the same
concurrency, once through `python -m sglang.bench_serving` (in the engine's interpreter; it needs the package
`datasets`) and once through specsweep's `measure_cell`; who goes first alternates. Reported are

- the ratio of output throughputs, specsweep / bench_serving, per pair and its median (wanted: 0.97 to 1.03);
- three accept lengths per pair: tokens / verify steps of specsweep's requests, the difference of the server's counters
  over bench_serving's own window (wanted: equal to 3 decimals), and what bench_serving prints, which is the server's
  running average without the tail of the run.

bench_serving's time includes one read of `/server_info` after the last answer; nothing is corrected for it. With
`--double` the server is the tests' timed double, whose speed does not depend on what else the machine does: there the
two clients are compared and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from actors.engines.cpu_kernels import STAND_INS, stand_in_paths
from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from actors.load.measurement import measure_cell, warm_up
from actors.load.prompts import choose_prompts
from actors.load.server_state import Counters, read_counters
from actors.load.workload import Workload
from benchmarks.machine import machine
from benchmarks.result_file import PACKAGES, write_result
from results.observations import CellObservation, LaunchObservation
from search_spaces.checkpoints import read_draft, read_target
from search_spaces.config import EngineConfig, Triple

ROOT = Path(__file__).resolve().parent.parent
SEED = 42
DOUBLE = {"ttft_s": 0.05, "step_s": 0.02, "pattern": [2, 0, 3, 1], "average_accept_length": 2.5}


def counters(url: str) -> Counters:
    """The server's totals now."""

    async def read() -> Counters | str:
        async with aiohttp.ClientSession() as session:
            return await read_counters(session, url)

    found = asyncio.run(read())
    assert isinstance(found, Counters), found
    return found


def through_bench_serving(url: str, model: Path, dataset: Path, workload: Workload, folder: Path) -> dict[str, Any]:
    """One run without a warm-up of its own, so that the counters' difference is that of its window."""
    out = folder / f"{uuid.uuid4().hex}.jsonl"
    command = [sys.executable, "-m", "sglang.bench_serving", "--backend", "sglang", "--base-url", url]
    command += ["--model", str(model), "--dataset-name", "custom", "--dataset-path", str(dataset), "--seed", str(SEED)]
    command += ["--num-prompts", str(len(workload.prompts)), "--sharegpt-output-len", str(workload.max_new_tokens)]
    command += ["--max-concurrency", str(workload.concurrency[0]), "--warmup-requests", "0", "--flush-cache"]
    command += ["--output-file", str(out), "--output-details", "--disable-tqdm"]
    before = counters(url)
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=engine_environment())
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    after = counters(url)
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["completed"] == len(workload.prompts), result["errors"]
    return {
        "output_throughput": result["output_throughput"],
        "duration_s": result["duration"],
        "tokens": result["total_output_tokens"],
        "accept_length_printed": result["accept_length"],
        "accept_length_counted": (after.tokens - before.tokens) / (after.verify_steps - before.verify_steps),
        "input_lens": result["input_lens"],
        "median_ttft_ms": result["median_ttft_ms"],
        "median_tpot_ms": result["median_tpot_ms"],
    }


def engine_environment() -> dict[str, str]:
    """bench_serving imports SGLang, so it needs the same stand-ins as the server."""
    path = os.pathsep.join(str(folder) for folder in stand_in_paths(frozenset(STAND_INS)))
    return {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}


def through_specsweep(url: str, workload: Workload) -> dict[str, Any]:
    """One cell."""
    cell = measure_cell(url, workload, workload.concurrency[0], failure_now=lambda: None)
    assert isinstance(cell, CellObservation), cell
    assert cell.flush_verified
    rows = cell.rows
    assert not [row.error for row in rows if row.error]
    tokens = sum(row.completion_tokens for row in rows)
    tpot_ms = [(row.finished_s - (row.first_token_s or 0)) / (row.completion_tokens - 1) * 1e3 for row in rows]
    return {
        "output_throughput": tokens / cell.duration_s,
        "duration_s": cell.duration_s,
        "tokens": tokens,
        "accept_length": tokens / sum(row.verify_steps or 0 for row in rows),
        "accept_length_counted": (cell.counted_tokens or 0) / (cell.counted_verify_steps or 1),
        "accept_length_server": cell.server_accept_length,
        "input_lens": [row.prompt_tokens for row in rows],
        "median_ttft_ms": statistics.median(((row.first_token_s or 0) - row.sent_s) * 1e3 for row in rows),
        "median_tpot_ms": statistics.median(tpot_ms),
        "client_lag_ms": cell.client_lag_s * 1e3,
    }


def run_pairs(url: str, target: Path, workload: Workload, pairs: int) -> list[dict[str, Any]]:
    """`pairs` interleaved pairs of runs."""
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = folder / "prompts.jsonl"
        answer = {"role": "assistant", "content": "yes, that is so"}
        rows = [{"conversations": [{"content": p.text}, answer]} for p in unshuffled(workload)]
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        for index in range(pairs):
            found: dict[str, Any] = {}
            for who in ("bench_serving", "specsweep")[:: 1 if index % 2 == 0 else -1]:
                found[who] = (
                    through_specsweep(url, workload)
                    if who == "specsweep"
                    else through_bench_serving(url, target, dataset, workload, folder)
                )
            same_order = found["bench_serving"].pop("input_lens") == found["specsweep"].pop("input_lens")
            assert same_order, "the two did not send the same prompts in the same order"
            ratio = found["specsweep"]["output_throughput"] / found["bench_serving"]["output_throughput"]
            results.append({**found, "throughput_ratio": ratio, "load": os.getloadavg()[0]})
            print(f"pair {index + 1}: throughput ratio {ratio:.4f}", file=sys.stderr)
    return results


def unshuffled(workload: Workload) -> list[Any]:
    """The prompts in the order from which bench_serving's shuffle (Python's, seeded) makes the workload's."""
    places = list(range(len(workload.prompts)))
    random.Random(SEED).shuffle(places)
    rows: list[Any] = [None] * len(places)
    for prompt, place in zip(workload.prompts, places, strict=True):
        rows[place] = prompt
    return rows


def main() -> None:
    """Start the server, run the pairs, print or write the result."""
    pair = ROOT / "sweeps" / "specs" / "demo_pair"
    parser = argparse.ArgumentParser(description="Parity with sglang.bench_serving on one real server.")
    parser.add_argument("--target", type=Path, default=pair / "target")
    parser.add_argument("--draft", type=Path, default=pair / "draft")
    parser.add_argument("--layout", default="0,3,7", help="the taps that the draft was trained on")
    parser.add_argument("--triple", default="5,1,6", help="num_steps, eagle_topk, num_draft_tokens")
    parser.add_argument("--prompts", default="24", help="a count of built-in prompts, or a file")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--double", action="store_true", help="the tests' timed double instead of SGLang")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    source: int | str = int(args.prompts) if args.prompts.isdigit() else args.prompts
    chosen = choose_prompts(source, seed=1, count=args.count)
    workload = Workload(
        prompts=chosen.prompts,
        warmup=chosen.warmup,
        concurrency=(args.concurrency,),
        max_new_tokens=args.tokens,
        temperature=0.0,
        ignore_eos=True,
        stream=True,
        request_timeout_s=300.0,
        max_attempts=1,
    )
    before = machine(*PACKAGES)
    if args.double:
        report(args, before, on_double(args, workload), {"server": "timed double", **DOUBLE})
    else:
        report(args, before, *on_sglang(args, workload))


def on_double(args: argparse.Namespace, workload: Workload) -> list[dict[str, Any]]:
    """The pairs against the timed double, in a process of its own; the target gives bench_serving its tokenizer."""
    command = [sys.executable, str(ROOT / "tests" / "doubles" / "timed_server.py"), json.dumps(DOUBLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
            return run_pairs(url, args.target, workload, args.pairs)
        finally:
            server.terminate()


def on_sglang(args: argparse.Namespace, workload: Workload) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The pairs against a real server, and what it is."""
    steps, topk, tokens = (int(number) for number in args.triple.split(","))
    config = EngineConfig(
        layout=tuple(int(tap) for tap in args.layout.split(",")),
        triple=Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens),
        tp_size=1,
    )
    with tempfile.TemporaryDirectory() as work_dir:
        engine = SglangServer(
            ServerSpec(
                target=read_target(args.target),
                draft=read_draft(args.draft),
                sglang_version="0.5.23",
                device="cpu",
                work_dir=Path(work_dir),
                sweep_id=f"parity-{uuid.uuid4().hex[:8]}",
                slot="0",
                stand_ins=frozenset(STAND_INS),
            )
        )
        try:
            launch = engine.apply(config)
            assert isinstance(launch, LaunchObservation), launch
            failure = warm_up(engine.base_url, workload, failure_now=engine.failure_now)
            assert failure is None, failure
            pairs = run_pairs(engine.base_url, args.target, workload, args.pairs)
        finally:
            engine.close()
    return pairs, {
        "server": f"SGLang {launch.engine_version}",
        "accelerator": launch.accelerator,
        "stand_in_kernels": launch.stand_in_kernels,
        "layout": args.layout,
        "triple": args.triple,
    }


def report(
    args: argparse.Namespace, before: Mapping[str, Any], pairs: list[dict[str, Any]], server: dict[str, Any]
) -> None:
    """Print the result, and write it when asked to."""
    ours = [round(pair["specsweep"]["accept_length"], 3) for pair in pairs]
    counted = [round(pair["bench_serving"]["accept_length_counted"], 3) for pair in pairs]
    content = {
        "server": server,
        "load": {"prompts": args.count, "max_new_tokens": args.tokens, "concurrency": args.concurrency},
        "throughput_ratio_median": round(statistics.median(pair["throughput_ratio"] for pair in pairs), 4),
        "throughput_ratio_wanted": [0.97, 1.03],
        "accept_length_specsweep": ours,
        "accept_length_counted_over_bench_serving": counted,
        "accept_length_equal_to_3_decimals": ours == counted,
        "accept_length_bench_serving_prints": [pair["bench_serving"]["accept_length_printed"] for pair in pairs],
        "pairs": pairs,
    }
    command = shlex.join(["python", "benchmarks/bench_serving_parity.py", *sys.argv[1:]])
    print(write_result(args.out, command=command, content=content, before=before), end="")


if __name__ == "__main__":
    main()
