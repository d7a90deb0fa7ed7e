"""Whether a cell's numbers may be compared: cache, failures, text, caps. Every objection is a plain sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from results.degenerate import TextStatistics
from results.observations import CellObservation, RequestRow

WARM_CACHE_SHARE = 0.01
SHARED_PREFIX_SHARE = 0.2
MAX_FAILED_SHARE = 0.05
MAX_REJECTED_SHARE = 0.05
MAX_DEGENERATE_SHARE = 0.2
SERVER_AVERAGE_TOLERANCE = 0.05
COLD_START_FACTOR = 10


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


def judge_cache(rows: Sequence[RequestRow], *, flush_verified: bool, objections: Objections) -> None:
    """A warm prefix cache flatters a rerun: such a cell is not ranked.

    After a flush the first request sent cannot find anything cached, while later ones may share a prefix with it (a
    system prompt, say), which belongs to the workload. So the cell is warm when it was not flushed or when its first
    request already hit the cache, and at least 1 % of all prompt tokens were cached.
    """
    share = cached_share(rows)
    if share is None:
        if not flush_verified:
            objections.not_ranked.append(
                "cache state unknown: the flush is not verified and no cached tokens are counted"
            )
        return
    first = min(rows, key=lambda row: row.sent_s)
    warm = share >= WARM_CACHE_SHARE and (not flush_verified or bool(first.cached_tokens))
    if warm:
        objections.not_ranked.append(f"warm cache: {share:.0%} of the prompt tokens were cached before this cell began")
    elif share >= SHARED_PREFIX_SHARE:
        objections.warnings.append(f"the prompts share prefixes: {share:.0%} of the prompt tokens came from the cache")
    if not flush_verified and not warm:
        objections.warnings.append("the cache flush is not verified, but no prompt was found in the cache")


def judge_failures(requests: int, failed: Sequence[RequestRow], retries: int, objections: Objections) -> None:
    """Failed requests are never hidden; above 5 % the rest no longer speaks for the workload."""
    if failed:
        sentence = f"{len(failed)} of {requests} requests failed (first: {failed[0].error})"
        too_many = len(failed) > MAX_FAILED_SHARE * requests
        (objections.not_ranked if too_many else objections.warnings).append(sentence)
    if retries:
        objections.warnings.append(f"{retries} retries were needed")


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


def judge_load(cell: CellObservation, objections: Objections) -> None:
    """Whether the asked concurrency was really reached, and the server warm."""
    rows = sorted(cell.rows, key=lambda row: row.sent_s)
    if len(rows) < cell.concurrency:
        objections.warnings.append(f"{len(rows)} requests cannot keep {cell.concurrency} in flight")
    times = [row.first_token_s - row.sent_s for row in rows if row.first_token_s is not None and row.error is None]
    first, rest = times[: cell.concurrency], times[cell.concurrency :]
    if len(rest) >= cell.concurrency and min(first) > COLD_START_FACTOR * median(rest) > 0:
        objections.warnings.append(
            f"cold start: even the fastest of the first {len(first)} requests took {min(first) / median(rest):.0f} "
            "times as long to its first token as later ones, so the server was not warmed up"
        )


def judge_server_args(args: Mapping[str, Any], concurrency: int, objections: Objections) -> None:
    """Limits in the server's resolved arguments that make a cell unlike others at the same concurrency."""
    cap = args.get("max_running_requests")
    if isinstance(cap, int) and not isinstance(cap, bool) and cap < concurrency:
        objections.warnings.append(
            f"the server runs at most {cap} requests at once (max_running_requests), {concurrency - cap} of "
            f"{concurrency} wait in its queue: comparing with a server under another limit is unfair"
        )
    if args.get("device") == "cuda":
        largest = args.get("cuda_graph_max_bs")
        if args.get("disable_cuda_graph") is True:
            objections.warnings.append("decoding runs without CUDA graphs (disable_cuda_graph)")
        elif isinstance(largest, int) and not isinstance(largest, bool) and 0 < largest < concurrency:
            objections.warnings.append(f"CUDA graphs cover batches up to {largest}, not {concurrency}")
