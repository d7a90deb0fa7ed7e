"""Summaries of one cell: every number with its interval, and why a cell is or is not ranked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval over `count` units of resampling (prompts)."""

    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """One cell as it is ranked and shown. A value that could not be computed is None and `missing` says why, by name.

    `accept_length` is generated tokens per verify step, token-weighted, bonus included. `acceptance_by_position[i]` is
    the share of verify steps that accepted more than i drafts (unconditional); `p1` its first entry.
    `output_throughput` is in tokens per second over the whole cell, `steady_throughput` without ramp-up and drain.
    Latencies are milliseconds. A cell with `not_ranked` reasons stays in tables and out of every comparison.
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

    @property
    def p1(self) -> float | None:
        return self.acceptance_by_position[0] if self.acceptance_by_position else None
