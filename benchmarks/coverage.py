"""Do 95 % intervals hold the truth 95 times in 100, and are they no wider than needed?

Cells are simulated from a population of prompts whose true accept length and throughput are known: prompts differ in
difficulty and length, verify steps in what they accept, servers in how long a step takes; a closed loop of `SLOTS`.
Cells that may stop early are simulated at two half-widths: one that takes many prompts, and one for which so few
suffice that the moment of stopping is lucky. `python -m benchmarks.coverage --out benchmarks/results/coverage.json`
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.result_file import PACKAGES, write_result
from results.cells import summarise_cell, throughput_pairs
from results.observations import CellObservation, RequestRow
from results.stats.ratios import overlapping_ratio
from results.stopping import StopRule, stop_reason
from results.summary import Estimate
from search_spaces.config import Triple

TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
SLOTS = 8
PROMPTS = 160
HALF_WIDTHS = (0.08, 0.12)
STEP_S, TTFT_S = 0.02, 0.05
TRUTH_CELLS = 600


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What each prompt of one cell gives, in order: tokens, verify steps' accepted drafts, seconds."""

    tokens: tuple[int, ...]
    accepted: tuple[tuple[int, ...], ...]
    latency_s: tuple[float, ...]


def draw_requests(seed: int, count: int = PROMPTS, *, step_s: float = STEP_S) -> Requests:
    """`count` prompts of the population; the same seed gives the same prompts to a server of any speed."""
    rng = np.random.default_rng(seed)
    tokens, accepted, latency = [], [], []
    for _ in range(count):
        limit = int(np.clip(rng.lognormal(4.2, 0.35), 24, 240))
        drafts = np.minimum(rng.geometric(1 - rng.beta(6, 4), limit) - 1, TRIPLE.num_steps)
        steps = int(np.searchsorted(1 + np.cumsum(drafts + 1), limit)) + 1
        tokens.append(limit)
        accepted.append(tuple(int(number) for number in drafts[:steps]))
        latency.append(TTFT_S + step_s * float(rng.gamma(20, 1 / 20, steps).sum()))
    return Requests(tokens=tuple(tokens), accepted=tuple(accepted), latency_s=tuple(latency))


def closed_loop(requests: Requests, sent: int) -> tuple[RequestRow, ...]:
    """The first `sent` prompts through `SLOTS` slots, each taking the next prompt as soon as it is free."""
    free = [0.0] * SLOTS
    rows = []
    for number in range(sent):
        start_s = heapq.heappop(free)
        end_s = start_s + requests.latency_s[number]
        heapq.heappush(free, end_s)
        rows.append(_row(number, requests, start_s, end_s))
    return tuple(rows)


def _row(number: int, requests: Requests, start_s: float, end_s: float) -> RequestRow:
    accepted = requests.accepted[number]
    return RequestRow(
        prompt_id=f"p{number}",
        sent_s=start_s,
        first_token_s=start_s + TTFT_S,
        finished_s=end_s,
        chunk_times_s=(),
        chunk_tokens=(),
        prompt_tokens=20,
        cached_tokens=0,
        completion_tokens=requests.tokens[number],
        verify_steps=len(accepted),
        proposed_drafts=len(accepted) * (TRIPLE.num_draft_tokens - 1),
        correct_drafts=sum(accepted),
        histogram=tuple(accepted.count(i) for i in range(TRIPLE.num_steps + 1)),
        output_ids=(),
        finish_reason="length",
        attempts=1,
        error=None,
    )


def cell_of(rows: tuple[RequestRow, ...], stopped: str | None = None) -> CellObservation:
    """The rows as the load client would hand them over."""
    return CellObservation(
        concurrency=SLOTS,
        workload_id="0" * 16,
        started_at_unix_s=0.0,
        duration_s=max(row.finished_s for row in rows),
        flush_verified=True,
        server_accept_length=None,
        server_accept_length_reason="simulated",
        rows=rows,
        stopped=stopped,
        prompts=PROMPTS,
    )


def stopped_cell(requests: Requests, half_width: float) -> CellObservation:
    """The cell as adaptive stopping leaves it: asked as often as `actors.load.early_stop` asks, then drained."""
    rows = closed_loop(requests, PROMPTS)
    by_end = sorted(rows, key=lambda row: row.finished_s)
    seen = SLOTS
    while seen < PROMPTS:
        reason = stop_reason(by_end[:seen], SLOTS, TRIPLE, StopRule(half_width=half_width))
        if reason is not None:
            now_s = by_end[seen - 1].finished_s
            return cell_of(closed_loop(requests, sum(row.sent_s <= now_s for row in rows)), reason)
        seen += max(SLOTS, math.ceil(seen / 10))
    return cell_of(rows)


def estimates(seed: int) -> dict[str, Estimate]:
    """Every interval of one simulated run, by name. The rival is half as fast again, on the same prompts."""
    requests, slower = draw_requests(seed), draw_requests(seed, step_s=1.5 * STEP_S)
    cells = {"whole": cell_of(closed_loop(requests, PROMPTS))}
    cells |= {f"stopped at {half_width:g}": stopped_cell(requests, half_width) for half_width in HALF_WIDTHS}
    pairs = throughput_pairs(closed_loop(slower, PROMPTS))
    found: dict[str, Estimate | None] = {}
    for name, cell in cells.items():
        summary = summarise_cell(cell, TRIPLE)
        found |= {f"accept_length, {name}": summary.accept_length, f"throughput, {name}": summary.output_throughput}
        found[f"speedup, {name}"] = overlapping_ratio(pairs, throughput_pairs(cell.rows))
        found[f"sent, {name}"] = Estimate(value=len(cell.rows), low=0, high=PROMPTS, count=1)
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def point_values(seed: int) -> dict[str, float]:
    """The same statistics of one run without intervals: many of them are the truth and its exact spread."""
    requests, slower = draw_requests(seed), draw_requests(seed, step_s=1.5 * STEP_S)
    rows = closed_loop(requests, PROMPTS)
    tokens = sum(requests.tokens)
    return {
        "accept_length": tokens / sum(map(len, requests.accepted)),
        "throughput": tokens / max(row.finished_s for row in rows),
        "speedup": sum(slower.latency_s) / sum(requests.latency_s),
    }


def measure_coverage(runs: int, truth_cells: int = TRUTH_CELLS) -> dict[str, Any]:
    """How many of `runs` seeded runs hold the truth, and the mean half-width over the exact one, by statistic.

    The truth is the mean of `truth_cells` other runs, the exact half-width 1.96 times their standard deviation. Cells
    that stopped early are wider, as they saw fewer prompts: their widths are not compared.
    """
    values = [point_values(1_000_000 + seed) for seed in range(truth_cells)]
    truths = {name: float(np.mean([value[name] for value in values])) for name in values[0]}
    exact = {name: 1.96 * float(np.std([value[name] for value in values], ddof=1)) for name in values[0]}
    found = [estimates(seed) for seed in range(runs)]
    return {
        "runs": runs,
        "prompts": PROMPTS,
        "concurrency": SLOTS,
        "share_of_prompts_sent": {
            name.removeprefix("sent, "): round(float(np.mean([one[name].value for one in found])) / PROMPTS, 3)
            for name in found[0]
            if name.startswith("sent")
        },
        "statistics": {
            name: _statistic([one[name] for one in found], name, truths, exact)
            for name in found[0]
            if not name.startswith("sent")
        },
    }


def _statistic(
    found: list[Estimate], name: str, truths: Mapping[str, float], exact: Mapping[str, float]
) -> dict[str, float | None]:
    kind, _, how = name.partition(", ")
    truth = truths[kind]
    half_width = float(np.mean([(one.high - one.low) / 2 for one in found]))
    return {
        "truth": round(truth, 4),
        "mean": round(float(np.mean([one.value for one in found])), 4),
        "covered": sum(one.low <= truth <= one.high for one in found) / len(found),
        "half_width_over_exact": round(half_width / exact[kind], 3) if how == "whole" else None,
    }


def main() -> None:
    """Print or write the result."""
    parser = argparse.ArgumentParser(description="Coverage and width of the intervals on simulated cells.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    before = machine(*PACKAGES)
    result = measure_coverage(args.runs)
    command = f"python -m benchmarks.coverage --runs {args.runs}"
    print(write_result(args.out, command=command, content=result, before=before), end="")


if __name__ == "__main__":
    main()
