"""Raw observations of one launch: request rows and cells, before any statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from results.failures import Failure
from search_spaces.config import Triple


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRow:
    """One request of a cell. Times are seconds since the cell's first request was sent, from a monotonic clock.

    The speculative counters are the server's own, per request (`meta_info` of `/generate`); None where the server
    gave none, as it does without speculation. `histogram[i]` counts verify steps that accepted i drafts.
    `chunk_times_s` and `chunk_tokens` hold the arrival of every streamed chunk and the tokens it carried.
    `error` is one line when the request failed; its other values are then what was known at that time.

    A request that was tried again has `attempts` above 1. `sent_s` is then when its last attempt was sent, and every
    statistic is of that attempt: TTFT, TPOT, ITL, throughput, how many were in flight. `first_sent_s` is when its first
    attempt was sent, for `e2e_s` alone. It is None where it was not kept (rows of an earlier version).
    """

    prompt_id: str
    sent_s: float
    first_token_s: float | None
    finished_s: float
    chunk_times_s: tuple[float, ...]
    chunk_tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    verify_steps: int | None
    proposed_drafts: int | None
    correct_drafts: int | None
    histogram: tuple[int, ...] | None
    output_ids: tuple[int, ...]
    finish_reason: str | None
    attempts: int
    error: str | None
    first_sent_s: float | None = None

    @property
    def e2e_s(self) -> float | None:
        """From the first attempt's sending to the end: what a user waited, failed attempts and the pauses between them
        included. None when the first of several attempts is not known."""
        if self.first_sent_s is None:
            return self.finished_s - self.sent_s if self.attempts == 1 else None
        return self.finished_s - self.first_sent_s


@dataclass(frozen=True, kw_only=True)
class CellObservation:
    """One measurement inside a launch: a workload at one concurrency (closed loop) or request rate (open loop).

    `request_rate` is in requests per second, None in a closed loop; in an open loop `concurrency` is 0, no limit.
    `flush_verified` is True when the prefix cache was flushed and the server seen idle before the first request; else
    `flush_reason` says what stood in the way. `duration_s` runs from the first request's sending to the last answer.
    `server_accept_length` is the server's own running average after the cell, a cross-check only; None with a reason.
    `counted_tokens` and `counted_verify_steps` are the differences of the server's counters
    `sglang:generation_tokens_total` and `sglang:spec_verify_calls_total` over the cell; None with `counted_reason`.
    `attempt_failures` counts the attempts that failed by their reason, those made good by a retry included.
    `shared_prefix_share` is the share of the prompts' characters that repeat the beginning of another prompt: so much
    may come from the prefix cache although it was flushed. `client_lag_s` is the longest delay with which the client
    itself woke up: on a busy machine times of arrival are late by up to so much. `stopped` says why not every prompt
    was sent; None when all were. `prompts` is how many the workload has, None when it was not noted.
    """

    concurrency: int
    workload_id: str
    started_at_unix_s: float
    duration_s: float
    flush_verified: bool
    server_accept_length: float | None
    server_accept_length_reason: str | None
    rows: tuple[RequestRow, ...] = field(repr=False)
    request_rate: float | None = None
    flush_reason: str | None = None
    counted_tokens: int | None = None
    counted_verify_steps: int | None = None
    counted_reason: str | None = None
    attempt_failures: tuple[tuple[str, int], ...] = ()
    shared_prefix_share: float = 0.0
    client_lag_s: float = 0.0
    stopped: str | None = None
    prompts: int | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchObservation:
    """One server start: the exact command, what the server says it runs, and what it cost.

    `effective_args` are the server's resolved arguments as read back from `/server_info`. `accelerator` says on what
    the numbers were measured; `stand_in_kernels` is True when CUDA kernels were replaced by the CPU stand-in.
    `findings` are one line each: what the server changed by itself, and what makes its numbers less than they seem.
    `ready_s` is the time from the decision to launch to the first answer: the end of the server before it and an
    interpreter to fork from included.
    `switch_s` is set when a running server changed to this configuration without a launch, and says how long it took;
    `pools` is then the largest triple that the server's memory pools were made for, and `graphs_s` and `graphs_gb` are
    what the CUDA graphs of the new configuration took of that time, and of GPU memory. `weights_loaded` is False when
    the server ran already, so that this trial cost no launch. `extra_starts` are servers that were started for this
    trial before the one that it ran on and came to nothing: one with too much room, or one that could not be switched.
    `simulated` is what replaces real acceptance there (`SGLANG_SIMULATE_ACC_LEN=3.24`), None when nothing does.
    `files` are (path, content) of small files that the command reads and that were made for it, such as the draft's
    config for a layout; `environment` are the variables, beside the user's own, that the command needs.
    """

    command: tuple[str, ...]
    engine_version: str
    accelerator: str
    stand_in_kernels: bool
    ready_s: float
    pid: int
    port: int
    device_ids: tuple[str, ...]
    effective_args: Mapping[str, Any] = field(repr=False)
    findings: tuple[str, ...] = ()
    switch_s: float | None = None
    pools: Triple | None = None
    graphs_s: float | None = None
    graphs_gb: float | None = None
    weights_loaded: bool = True
    files: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    environment: tuple[tuple[str, str], ...] = ()
    simulated: str | None = None
    extra_starts: int = 0

    @property
    def server_starts(self) -> int:
        """How many servers were started for this trial."""
        return self.weights_loaded + self.extra_starts

    def counted(self, starts: int) -> LaunchObservation:
        """The same after so many server starts."""
        return replace(self, weights_loaded=starts > 0, extra_starts=max(0, starts - 1))


def server_starts(launch: LaunchObservation | None, failure: Failure | None) -> int | None:
    """How many servers were started for a trial that ended so; None when nobody noted it."""
    if launch is not None:
        return launch.server_starts
    return None if failure is None else failure.server_starts
