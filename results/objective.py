"""The objective: one number of one cell, by name, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from results.loads import load_words
from results.summary import CellSummary, Estimate

if TYPE_CHECKING:
    # every spec is checked against the names below; a record's classes are not needed for that
    from results.records import TrialRecord

Goal = Literal["maximize", "minimize"]
Metric = Literal[
    "output_throughput",
    "steady_throughput",
    "accept_length",
    "ttft_ms_p50",
    "ttft_ms_p99",
    "tpot_ms_p50",
    "tpot_ms_p99",
]
METRICS: tuple[Metric, ...] = get_args(Metric)
CLOSED_LOOP_METRICS: frozenset[Metric] = frozenset({"steady_throughput"})
"""What an open loop does not have: it has no slots to keep busy."""
METRIC_WORDS: dict[Metric, str] = {
    "output_throughput": "output throughput (tokens/s)",
    "steady_throughput": "steady output throughput (tokens/s)",
    "accept_length": "accept length",
    "ttft_ms_p50": "median time to first token (ms)",
    "ttft_ms_p99": "99th percentile of the time to first token (ms)",
    "tpot_ms_p50": "median time per output token (ms)",
    "tpot_ms_p99": "99th percentile of the time per output token (ms)",
}
METRIC_HEADS: dict[Metric, str] = {
    "output_throughput": "tokens/s",
    "steady_throughput": "steady tokens/s",
    "accept_length": "accept length",
    "ttft_ms_p50": "TTFT p50 ms",
    "ttft_ms_p99": "TTFT p99 ms",
    "tpot_ms_p50": "TPOT p50 ms",
    "tpot_ms_p99": "TPOT p99 ms",
}


@dataclass(frozen=True, kw_only=True)
class MissingValue:
    """Why a trial has no value of the objective. Never a zero, never NaN."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Objective:
    """`metric` at `concurrency` (closed loop) or at `request_rate` (open loop, per second).

    Without either the first closed-loop cell of a trial is meant. `goal` is the way that is better: `minimize` for
    latencies, else `maximize`, unless given. ValueError with both loads, and for a steady throughput of an open loop,
    which has no slots to keep busy.
    """

    metric: Metric = "output_throughput"
    concurrency: int | None = None
    request_rate: float | None = None
    goal: Goal | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"objective metric {self.metric!r} is none of {', '.join(METRICS)}")
        if self.request_rate is not None and self.concurrency is not None:
            raise ValueError(f"an objective at concurrency {self.concurrency} and at {self.request_rate:g} requests/s")
        if self.request_rate is not None and self.metric in CLOSED_LOOP_METRICS:
            raise ValueError(f"an open loop has no {self.metric}")

    @property
    def direction(self) -> Goal:
        return self.goal or ("minimize" if "_ms_" in self.metric else "maximize")

    def __str__(self) -> str:
        return f"{METRIC_WORDS[self.metric]} at {self.load_words}"

    @property
    def load_words(self) -> str:
        """The load at which it is read."""
        if self.concurrency is None and self.request_rate is None:
            return "the first concurrency"
        return load_words((self.concurrency or 0, self.request_rate))

    def cell(self, record: TrialRecord) -> CellSummary | None:
        """The cell the objective looks at; None when the trial did not measure it."""
        same_loop = [cell for cell in record.cells if cell.request_rate == self.request_rate]
        cells = [cell for cell in same_loop if self.concurrency in (None, cell.concurrency)]
        return cells[0] if cells else None

    def estimate(self, cell: CellSummary) -> Estimate | None:
        """The cell's value; a percentile of too few requests gets a degenerate interval with count 0."""
        value = getattr(cell, self.metric)
        if value is None or isinstance(value, Estimate):
            return value
        interval = cell.interval(self.metric)
        if interval is None:
            return Estimate(value=value, low=value, high=value, count=0)
        low, high = interval
        requests = cell.requests - cell.requests_failed
        return Estimate(value=value, low=min(low, value), high=max(high, value), count=requests)

    def value(self, record: TrialRecord) -> float | MissingValue:
        """What the search is told, or why it cannot be told anything: failed, not measured, missing or not ranked."""
        if record.failure is not None:
            return MissingValue(reason=record.failure.message)
        cell = self.cell(record)
        if cell is None:
            return MissingValue(reason=f"no cell at {self.load_words}")
        if cell.not_ranked:
            return MissingValue(reason=cell.not_ranked[0])
        estimate = self.estimate(cell)
        if estimate is None:
            return MissingValue(reason=dict(cell.missing).get(self.metric, f"{self.metric} was not measured"))
        return estimate.value
