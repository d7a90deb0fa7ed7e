"""Do the intervals hold the truth over real HTTP? Seeded runs against a server whose every delay is known.

    python -m benchmarks.coverage_http [--runs 100] [--out benchmarks/results/coverage_http.json]

The server is the tests' timed double in a process of its own. Its prompts form a population: they differ in the time to
the first token, the time of a step, what is accepted, and length. A run draws `PROMPTS` of them by its seed, and
measures three cells with the load client of every sweep: one in full, one that may stop early, and one on a server that
does not speculate. The truth needs no HTTP: it is what the same schedule gives for many other draws,
so the client's and the network's own time counts as an error. What does not is the server's: on a busy machine it is
not punctual, so a run's truth is the plan's times what the server says that it made of the plan for these prompts.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from doubles.timed_answers import TimedPlan, schedule_of, script_of

from actors.load.measurement import measure_cell
from actors.load.workload import Workload, prompt_of
from benchmarks.machine import machine
from benchmarks.result_file import PACKAGES, write_result
from results.cells import summarise_cell, throughput_pairs
from results.observations import CellObservation, RequestRow
from results.stats.ratios import overlapping_ratio
from results.summary import CellSummary, Estimate
from results.throughput import e2e_ms, percentile, steady_throughput, tpot_ms, ttft_ms
from search_spaces.config import Triple

DOUBLE = Path(__file__).resolve().parent.parent / "tests" / "doubles" / "timed_server.py"
PLAN = TimedPlan(ttft_s=0.12, step_s=0.018, acceptance=(0.8, 0.7, 0.6), num_draft_tokens=4, spread=0.3, seed=5)
BASELINE = replace(PLAN, acceptance=())
TRIPLE = Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4)
PROMPTS, SLOTS, TOKENS = 64, 16, 48
HALF_WIDTH = 0.12
TRUTH_RUNS = 1000


def prompts_of(seed: int) -> list[str]:
    """The prompts of one run: a draw from the population."""
    return [f"prompt {number} of run {seed}" for number in range(PROMPTS)]


def row_of(plan: TimedPlan, text: str, sent_s: float, offsets_s: Sequence[float]) -> RequestRow:
    """A request whose events came `offsets_s` after it was sent."""
    script = script_of(plan, text, TOKENS)
    times = tuple(sent_s + offset_s for offset_s in offsets_s)
    return RequestRow(
        prompt_id=text,
        sent_s=sent_s,
        first_token_s=times[0],
        finished_s=times[-1],
        chunk_times_s=times,
        chunk_tokens=script.commits,
        prompt_tokens=5,
        cached_tokens=0,
        completion_tokens=script.tokens,
        verify_steps=len(script.accepted),
        proposed_drafts=None,
        correct_drafts=None,
        histogram=None,
        output_ids=(),
        finish_reason="length",
        attempts=1,
        error=None,
    )


Offsets = Mapping[str, Sequence[float]]
"""By prompt: how long after its request's arrival each event was written."""


def scheduled(plan: TimedPlan, texts: Sequence[str]) -> Offsets:
    """As the plan has it."""
    return {text: [due_s for _, due_s in schedule_of(plan, text, script_of(plan, text, TOKENS))] for text in texts}


def rows_of(plan: TimedPlan, offsets: Offsets) -> list[RequestRow]:
    """A cell without anything between server and client: every slot takes the next prompt as soon as it is free."""
    free, rows = [0.0] * SLOTS, []
    for text, offsets_s in offsets.items():
        rows.append(row_of(plan, text, heapq.heappop(free), offsets_s))
        heapq.heappush(free, rows[-1].finished_s)
    return rows


def point_values(offsets: Offsets, baseline: Offsets) -> dict[str, float]:
    """The statistics of a cell whose events came like that, and its speedup over the baseline's."""
    rows = rows_of(PLAN, offsets)
    duration_s, tokens = max(row.finished_s for row in rows), sum(row.completion_tokens for row in rows)
    steady = steady_throughput(rows, SLOTS, duration_s)
    return {
        "accept_length": tokens / sum(row.verify_steps or 0 for row in rows),
        "output_throughput": tokens / duration_s,
        "steady_throughput": steady if isinstance(steady, float) else math.nan,
        "ttft_ms_p50": percentile(ttft_ms(rows), 50) or 0.0,
        "tpot_ms_p50": percentile(tpot_ms(rows), 50) or 0.0,
        "e2e_ms_p50": percentile(e2e_ms(rows), 50) or 0.0,
        "speedup": sum(baseline[text][-1] for text in offsets) / sum(offsets_s[-1] for offsets_s in offsets.values()),
    }


def drawn_values(seed: int) -> dict[str, float]:
    """The statistics of one draw by the plan alone."""
    texts = prompts_of(seed)
    return point_values(scheduled(PLAN, texts), scheduled(BASELINE, texts))


@contextmanager
def serving(plan: TimedPlan) -> Iterator[str]:
    """The URL of the double in a process of its own."""
    command = [sys.executable, str(DOUBLE), json.dumps(asdict(plan))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        finally:
            server.terminate()


def measured(url: str, seed: int, triple: Triple | None = TRIPLE, half_width: float | None = None) -> CellObservation:
    """One cell of a run's prompts by the real client."""
    workload = Workload(
        prompts=tuple(prompt_of(text) for text in prompts_of(seed)),
        warmup=(),
        concurrency=(SLOTS,),
        max_new_tokens=TOKENS,
        temperature=0.0,
        ignore_eos=False,
        stream=True,
        request_timeout_s=60.0,
        max_attempts=1,
        half_width=half_width,
    )
    cell = measure_cell(url, workload, SLOTS, failure_now=lambda: None, triple=triple)
    assert isinstance(cell, CellObservation), cell
    assert not [row.error for row in cell.rows if row.error]
    return cell


def written(url: str, cell: CellObservation) -> Offsets:
    """When the server really wrote what the cell's requests got, in the order of sending."""
    with urllib.request.urlopen(f"{url}/times", timeout=30) as answer:
        times = json.load(answer)
    texts = {prompt_of(text).prompt_id: text for text in times}
    rows = sorted(cell.rows, key=lambda row: row.sent_s)
    return {
        texts[row.prompt_id]: [at - times[texts[row.prompt_id]][0] for at in times[texts[row.prompt_id]][1:]]
        for row in rows
    }


@dataclass(frozen=True, kw_only=True)
class Stated:
    """An interval as a run states it, and by which factor the server was late or early in that run."""

    estimate: Estimate
    server: float


def estimates(url: str, baseline_url: str, seed: int) -> dict[str, Stated]:
    """Every interval that one run states, by statistic and kind of cell."""
    baseline = measured(baseline_url, seed, None)
    baseline_offsets = written(baseline_url, baseline)
    found: dict[str, Stated] = {}
    for kind, half_width in (("whole", None), ("stopped", HALF_WIDTH)):
        cell = measured(url, seed, half_width=half_width)
        summary, offsets = summarise_cell(cell, TRIPLE), written(url, cell)
        planned = point_values(scheduled(PLAN, list(offsets)), scheduled(BASELINE, list(baseline_offsets)))
        done = point_values(offsets, baseline_offsets)
        assert summary.accept_length is not None
        assert summary.output_throughput is not None
        stated = {
            "accept_length": summary.accept_length,
            "output_throughput": summary.output_throughput,
            "speedup": overlapping_ratio(throughput_pairs(baseline.rows), throughput_pairs(cell.rows)),
        }
        if half_width is None:
            stated |= {name: plain(summary, name) for name, _, _ in summary.intervals}
        else:
            stated["sent"] = Estimate(value=len(cell.rows), low=0, high=PROMPTS, count=1)
        found |= {
            f"{name}, {kind}": Stated(estimate=estimate, server=done.get(name, 1.0) / planned.get(name, 1.0))
            for name, estimate in stated.items()
        }
    return found


def plain(summary: CellSummary, name: str) -> Estimate:
    """A plain number of a summary with its interval."""
    interval, value = summary.interval(name), float(getattr(summary, name))
    assert interval is not None
    return Estimate(value=value, low=min(interval[0], value), high=max(interval[1], value), count=summary.requests)


def measure_coverage(
    runs: int, truth_runs: int = TRUTH_RUNS, progress: Callable[[int], object] = lambda done: None
) -> dict[str, Any]:
    """How many of `runs` seeded runs hold the truth, and the mean half-width over the exact one, by statistic.

    The truth is the mean of `truth_runs` other draws, and 1.96 times their standard deviation is the exact half-width.
    Cells that stopped early saw fewer prompts: their widths are not compared.
    """
    values = [drawn_values(1_000_000 + seed) for seed in range(truth_runs)]
    truths = {name: float(np.mean([value[name] for value in values])) for name in values[0]}
    exact = {name: 1.96 * float(np.std([value[name] for value in values], ddof=1)) for name in values[0]}
    found = []
    with serving(PLAN) as url, serving(BASELINE) as baseline_url:
        measured(url, -1)
        measured(baseline_url, -1, None)
        for seed in range(runs):
            found.append(estimates(url, baseline_url, seed))
            progress(seed + 1)
    return {
        "runs": runs,
        "prompts": PROMPTS,
        "concurrency": SLOTS,
        "server": {name: value for name, value in asdict(PLAN).items() if value != getattr(TimedPlan(), name)},
        "half_width_asked": HALF_WIDTH,
        "share_of_prompts_sent_when_stopping": round(
            float(np.mean([one["sent, stopped"].estimate.value for one in found])) / PROMPTS, 3
        ),
        "statistics": {
            name: _statistic([one[name] for one in found], name, truths, exact)
            for name in sorted(found[0])
            if name != "sent, stopped"
        },
    }


def _statistic(
    found: Sequence[Stated], name: str, truths: Mapping[str, float], exact: Mapping[str, float]
) -> dict[str, float | None]:
    kind, _, how = name.partition(", ")
    half_width = float(np.mean([(one.estimate.high - one.estimate.low) / 2 for one in found]))
    covered = [one.estimate.low <= truths[kind] * one.server <= one.estimate.high for one in found]
    return {
        "truth": round(truths[kind], 4),
        "server_over_plan": round(float(np.mean([one.server for one in found])), 4),
        "mean_over_truth": round(float(np.mean([one.estimate.value / one.server for one in found])) / truths[kind], 4),
        "covered": sum(covered) / len(found),
        "half_width_over_exact": round(half_width / exact[kind], 3) if how == "whole" else None,
    }


def main() -> None:
    """Print or write the result."""
    parser = argparse.ArgumentParser(description="Coverage and width of the intervals over HTTP.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    before = machine(*PACKAGES)
    result = measure_coverage(args.runs, progress=lambda done: print(f"\r{done}", end="", file=sys.stderr))
    command = f"python -m benchmarks.coverage_http --runs {args.runs}"
    print(write_result(args.out, command=command, content=result, before=before), end="")


if __name__ == "__main__":
    main()
