"""Whether a cell's numbers may be compared: cache, failures, text, caps. Every objection is a plain sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from results.degenerate import TextStatistics
from results.observations import CellObservation, RequestRow
from results.server_limits import graph_problem, request_limit
from results.simulated import looks_simulated

WARM_CACHE_SHARE = 0.01
SHARED_PREFIX_SHARE = 0.2
UNEXPLAINED_CACHE_SHARE = 0.1
MAX_FAILED_SHARE = 0.05
MAX_REJECTED_SHARE = 0.05
MAX_DEGENERATE_SHARE = 0.2
SERVER_AVERAGE_TOLERANCE = 0.05
COUNTERS_TOLERANCE = 0.01
COLD_START_FACTOR = 10
MIN_CLIENT_LAG_S = 0.1
MAX_CLIENT_LAG_SHARE = 0.1


@dataclass(kw_only=True)
class Objections:
    """Collected sentences: `warnings` are to be known, `not_ranked` keeps the cell out of every comparison."""

    warnings: list[str] = field(default_factory=list)
    not_ranked: list[str] = field(default_factory=list)


def cached_share(rows: Sequence[RequestRow]) -> float | None:
    """Cached prompt tokens / prompt tokens; None when the server does not count cached tokens."""
    counted = [(row.cached_tokens, row.prompt_tokens) for row in rows if row.cached_tokens is not None]
    prompt_tokens = sum(prompt for _, prompt in counted)
    return sum(cached for cached, _ in counted) / prompt_tokens if prompt_tokens else None


def judge_cache(cell: CellObservation, objections: Objections) -> None:
    """A warm prefix cache flatters a rerun: such a cell is not ranked.

    After a flush the first request sent cannot find anything cached, while later ones may share a prefix with it (a
    system prompt, say), which belongs to the workload. So the cell is warm when at least 1 % of the prompt tokens were
    cached and either the cache was not flushed, or the first request already hit it, or far more was cached than the
    prompts share (two tokens a request, such as a start marker, and a tenth of all are let pass).
    """
    rows = [row for row in cell.rows if row.error is None]
    share = cached_share(rows)
    flush = f"the flush is not verified ({cell.flush_reason})" if cell.flush_reason else "the flush is not verified"
    if share is None:
        if not cell.flush_verified:
            objections.not_ranked.append(f"cache state unknown: {flush} and no cached tokens are counted")
        return
    first = min(rows, key=lambda row: row.sent_s)
    unexplained = sum(max(0, (row.cached_tokens or 0) - 2) for row in rows) / sum(row.prompt_tokens for row in rows)
    excess = unexplained - cell.shared_prefix_share > UNEXPLAINED_CACHE_SHARE
    if share >= WARM_CACHE_SHARE and (not cell.flush_verified or first.cached_tokens or excess):
        objections.not_ranked.append(f"warm cache: {share:.0%} of the prompt tokens were cached before this cell began")
        return
    if share >= SHARED_PREFIX_SHARE:
        objections.warnings.append(f"the prompts share prefixes: {share:.0%} of the prompt tokens came from the cache")
    if not cell.flush_verified:
        objections.warnings.append(f"{flush}, but no prompt was found in the cache")


def retries(cell: CellObservation) -> int:
    """Attempts beyond the first of every request."""
    return sum(max(0, row.attempts - 1) for row in cell.rows)


def judge_failures(cell: CellObservation, objections: Objections) -> None:
    """Failed requests are never hidden; above 5 % the rest no longer speaks for the workload."""
    failed = [row for row in cell.rows if row.error is not None]
    if failed:
        sentence = f"{len(failed)} of {len(cell.rows)} requests failed (first: {failed[0].error})"
        too_many = len(failed) > MAX_FAILED_SHARE * len(cell.rows)
        (objections.not_ranked if too_many else objections.warnings).append(sentence)
    if retries(cell):
        reasons = "; ".join(f"{count} x {reason}" for reason, count in cell.attempt_failures)
        objections.warnings.append(f"{retries(cell)} retries were needed" + (f" ({reasons})" if reasons else ""))


def judge_text(text: TextStatistics, objections: Objections) -> None:
    """Looping output makes every draft look good and says nothing about real prompts."""
    if not text.degenerate:
        return
    sentence = (
        f"degenerate output: {text.degenerate} of {text.judged} outputs loop or repeat a few tokens "
        f"({text.distinct_tokens} distinct tokens in all); measure on real prompts"
    )
    too_many = text.degenerate_token_share >= MAX_DEGENERATE_SHARE
    (objections.not_ranked if too_many else objections.warnings).append(sentence)


def judge_counters(rejected: Sequence[str], counted: int, objections: Objections) -> None:
    """Requests whose counters contradict each other are left out of acceptance, and that is said."""
    if not rejected:
        return
    total = counted + len(rejected)
    sentence = f"{len(rejected)} of {total} requests have inconsistent counters and are left out ({rejected[0]})"
    too_many = len(rejected) > MAX_REJECTED_SHARE * total
    (objections.not_ranked if too_many else objections.warnings).append(sentence)


def judge_server_average(ours: float | None, server: float | None, objections: Objections) -> None:
    """The server's running average covers other requests too: a disagreement is recorded, our number stands."""
    if ours is not None and server is not None and abs(server - ours) > SERVER_AVERAGE_TOLERANCE * ours:
        objections.warnings.append(
            f"the server's running average accept length {server:.2f} differs from {ours:.2f} measured in this cell: "
            "it also covers other requests and moves only every 40 decode iterations"
        )


def counted_accept_length(cell: CellObservation) -> float | None:
    """Tokens / verify steps by the server's counters over the cell; slightly high, as failed requests count too."""
    if cell.counted_tokens is None or not cell.counted_verify_steps:
        return None
    return cell.counted_tokens / cell.counted_verify_steps


def judge_counted(ours: float | None, cell: CellObservation, objections: Objections) -> None:
    """Per-request counters and the server's own must agree over the cell; when not, somebody else used the server."""
    counted = counted_accept_length(cell)
    if ours is not None and counted is not None and abs(counted - ours) > COUNTERS_TOLERANCE * ours:
        objections.warnings.append(
            f"the server's counters give accept length {counted:.3f} over this cell, its requests {ours:.3f}: "
            "other requests may have run on the server"
        )


def judge_load(cell: CellObservation, objections: Objections) -> None:
    """Whether the asked concurrency was really reached, and the server warm."""
    rows = sorted(cell.rows, key=lambda row: row.sent_s)
    if len(rows) < cell.concurrency:
        objections.warnings.append(f"{len(rows)} requests cannot keep {cell.concurrency} in flight")
    times = [row.first_token_s - row.sent_s for row in rows if row.first_token_s is not None and row.error is None]
    first, rest = times[: max(1, cell.concurrency)], times[max(1, cell.concurrency) :]
    if len(rest) >= len(first) > 0 and min(first) > COLD_START_FACTOR * median(rest) > 0:
        objections.warnings.append(
            f"cold start: even the fastest of the first {len(first)} requests took {min(first) / median(rest):.0f} "
            "times as long to its first token as later ones, so the server was not warmed up"
        )


def judge_client(cell: CellObservation, objections: Objections) -> None:
    """A client that wakes up late sees every token late."""
    latencies = [row.finished_s - row.sent_s for row in cell.rows if row.error is None]
    if latencies and cell.client_lag_s > max(MIN_CLIENT_LAG_S, MAX_CLIENT_LAG_SHARE * median(latencies)):
        objections.warnings.append(
            f"the client was up to {cell.client_lag_s:.2f} s late on a busy machine: latencies read too high"
        )


def judge_server_args(args: Mapping[str, Any], in_flight: int, objections: Objections) -> None:
    """Limits in the server's resolved arguments that make a cell unlike others under the same load.

    `in_flight` is the concurrency of a closed loop, the most requests at once of an open one.
    """
    cap = request_limit(args)
    if cap is not None and cap < in_flight:
        objections.warnings.append(
            f"the server runs at most {cap} requests at once (max_running_requests), {in_flight - cap} of "
            f"{in_flight} wait in its queue: comparing with a server under another limit is unfair"
        )
    without_graphs = graph_problem(args, in_flight)
    if without_graphs is not None:
        objections.warnings.append(without_graphs)


def judge_simulated(told: str | None, histogram: Sequence[int] | None, num_steps: int, objections: Objections) -> None:
    """Simulated acceptance says nothing about a draft.

    `told` is the setting that simulates, where the engine was allowed to: the cell is then what was asked for, and
    every cell of the study alike. Where nobody allowed it, a cell that looks simulated is not ranked.
    """
    if told is not None:
        objections.warnings.append(f"simulated acceptance ({told}): nothing here is a measurement of the draft")
    elif histogram is not None and looks_simulated(histogram, num_steps):
        accepted = " or ".join(str(drafts) for drafts, count in enumerate(histogram) if count)
        objections.not_ranked.append(
            f"simulated acceptance: each of {sum(histogram)} verify steps accepted {accepted} drafts, which no draft "
            "does; unset SGLANG_SIMULATE_ACC_LEN where the server starts"
        )
