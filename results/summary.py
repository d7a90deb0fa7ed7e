"""Summaries of one cell: every number with its interval, and why a cell is or is not ranked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.loads import load_label

if TYPE_CHECKING:
    from results.request_table import CellKey


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval over `count` units of resampling (prompts). All three numbers are finite."""

    value: float
    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (self.value, self.low, self.high)) or self.low > self.high:
            raise ValueError(f"not an estimate with an interval: {self.value!r} [{self.low!r}, {self.high!r}]")

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width, as a share of the value; infinite for the value 0."""
        return math.inf if self.value == 0 else (self.high - self.low) / 2 / abs(self.value)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """The estimate times a positive, exactly known factor."""
    return Estimate(
        value=estimate.value * factor, low=estimate.low * factor, high=estimate.high * factor, count=estimate.count
    )


@dataclass(frozen=True, kw_only=True)
class ContextStratum:
    """The accept length of the requests whose prompts have `low_tokens` to `high_tokens` tokens (both included)."""

    low_tokens: int
    high_tokens: int
    requests: int
    accept_length: float


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """One cell as it is ranked and shown. A value that could not be computed is None and `missing` says why, by name.

    `accept_length` is generated tokens per verify step, token-weighted, bonus included. `acceptance_by_position[i]` is
    the share of verify steps that accepted more than i drafts (unconditional); `p1` its first entry.
    `output_throughput` is in tokens per second over the whole cell, `steady_throughput` without ramp-up and drain.
    Latencies are milliseconds. A cell with `not_ranked` reasons stays in tables and out of every comparison.

    `draft_accept_length` is 1 + accepted drafts per verify step: without the prefill's token (which has no verify step)
    and without the cut at the request's end, so it never exceeds the ceiling. `rows_rejected` counts requests whose
    counters contradict each other; they are left out of acceptance. `degenerate_share` is the share of output tokens in
    looping or repetitive outputs. `mean_in_flight` is the time-averaged number of requests being served,
    `most_in_flight` the largest number at one time. `itl_ms_p50` and `itl_ms_p99` are percentiles of the time between
    two arrivals of one request; where `tokens_per_chunk` (arrivals after the first) is above 1 that is the time between
    chunks of several tokens, not between tokens, and `itl_is_per_chunk` is True. `e2e_ms_p50` and `e2e_ms_p99` are of
    the time from a request's first sending to its end, retries included (`RequestRow.e2e_s`). `request_rate`
    (per second) marks an open loop, whose `concurrency` is 0. `counted_accept_length` comes from the server's counters
    over the cell, a cross-check only. `stopped` says why the cell ended before the last of its `prompts`;
    `output_throughput` is then that of the whole set (`results.throughput.output_throughput`). `intervals` has (name,
    low, high), a 95 % interval, for values that are plain numbers: those of `steady_throughput` and of percentiles for
    which the requests suffice.
    """

    concurrency: int
    workload_id: str
    requests: int
    requests_failed: int
    retries: int
    duration_s: float
    completion_tokens: int
    verify_steps: int | None
    accept_length: Estimate | None
    acceptance_by_position: tuple[float, ...] | None
    histogram: tuple[int, ...] | None
    output_throughput: Estimate | None
    steady_throughput: float | None
    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    tpot_ms_p50: float | None
    tpot_ms_p99: float | None
    cached_token_share: float | None
    distinct_bigram_share: float | None
    server_accept_length: float | None
    missing: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    not_ranked: tuple[str, ...]
    started_at_unix_s: float | None = None
    draft_accept_length: float | None = None
    rows_rejected: int = 0
    degenerate_share: float | None = None
    mean_in_flight: float | None = None
    context_strata: tuple[ContextStratum, ...] = ()
    request_rate: float | None = None
    counted_accept_length: float | None = None
    stopped: str | None = None
    prompts: int | None = None
    intervals: tuple[tuple[str, float, float], ...] = ()
    most_in_flight: int | None = None
    itl_ms_p50: float | None = None
    itl_ms_p99: float | None = None
    tokens_per_chunk: float | None = None
    e2e_ms_p50: float | None = None
    e2e_ms_p99: float | None = None

    @property
    def load(self) -> CellKey:
        """What tells the cells of one trial apart."""
        return (self.concurrency, self.request_rate)

    @property
    def load_label(self) -> str:
        """`8` for a closed loop of eight, `2.5/s` for an open loop."""
        return load_label(self.load)

    def interval(self, name: str) -> tuple[float, float] | None:
        """The 95 % interval of a plain number, None if it has none."""
        return next(((low, high) for known, low, high in self.intervals if known == name), None)

    @property
    def itl_is_per_chunk(self) -> bool | None:
        """Whether a time between arrivals is one between chunks of several tokens; None without such times."""
        return None if self.tokens_per_chunk is None else self.tokens_per_chunk > 1

    @property
    def ranked(self) -> bool:
        return not self.not_ranked

    @property
    def p1(self) -> float | None:
        return self.acceptance_by_position[0] if self.acceptance_by_position else None
