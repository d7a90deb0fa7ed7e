"""From one cell's raw rows to its summary: numbers with intervals, reasons for missing ones, and objections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.acceptance import acceptance_by_position, counter_problem, pooled_histogram
from results.degenerate import TextStatistics, text_statistics
from results.observations import CellObservation, RequestRow
from results.stats import Pair, ratio_of_sums
from results.strata import context_strata, judge_strata
from results.summary import CellSummary, ContextStratum, Estimate
from results.throughput import (
    latency_intervals,
    mean_in_flight,
    output_throughput,
    percentile,
    steady_interval,
    steady_throughput,
    tpot_ms,
    ttft_ms,
)
from results.trust import (
    Objections,
    cached_share,
    counted_accept_length,
    judge_cache,
    judge_client,
    judge_counted,
    judge_counters,
    judge_failures,
    judge_load,
    judge_server_args,
    judge_server_average,
    judge_text,
    retries,
)
from search_spaces.config import Triple


@dataclass(frozen=True, kw_only=True)
class AcceptanceSummary:
    """Acceptance of a cell; None fields have their reason in `missing`."""

    accept_length: Estimate | None
    draft_accept_length: float | None
    by_position: tuple[float, ...] | None
    histogram: tuple[int, ...] | None
    verify_steps: int | None
    counted: int
    rejected: tuple[str, ...]
    strata: tuple[ContextStratum, ...]
    missing: Mapping[str, str]


def acceptance_pairs(rows: Sequence[RequestRow], triple: Triple | None = None) -> dict[str, Pair]:
    """(tokens, verify steps) per prompt over requests with consistent counters: what paired comparisons take."""
    pairs: dict[str, Pair] = {}
    for row in _counted(rows, triple)[0]:
        tokens, steps = pairs.get(row.prompt_id, (0.0, 0.0))
        pairs[row.prompt_id] = (tokens + row.completion_tokens, steps + (row.verify_steps or 0))
    return pairs


def throughput_pairs(rows: Sequence[RequestRow]) -> dict[str, Pair]:
    """(tokens, latency in seconds) per prompt over requests that succeeded: what paired comparisons take."""
    pairs: dict[str, Pair] = defaultdict(lambda: (0.0, 0.0))
    for row in rows:
        if row.error is None:
            tokens, latency = pairs[row.prompt_id]
            pairs[row.prompt_id] = (tokens + row.completion_tokens, latency + row.finished_s - row.sent_s)
    return dict(pairs)


def _counted(rows: Sequence[RequestRow], triple: Triple | None) -> tuple[list[RequestRow], list[str]]:
    """Rows whose counters can be used, and the problems of those that cannot."""
    counted, problems = [], []
    for row in rows:
        if row.error is not None or not row.verify_steps:
            continue
        problem = counter_problem(row, triple)
        if problem is None:
            counted.append(row)
        else:
            problems.append(problem)
    return counted, problems


def summarise_acceptance(rows: Sequence[RequestRow], triple: Triple | None) -> AcceptanceSummary:
    """Token-weighted accept length and positions over the requests that succeeded."""
    counted, rejected = _counted(rows, triple)
    if triple is None or not counted:
        reason = _why_no_acceptance(triple, rejected)
        names = ("accept_length", "draft_accept_length", "acceptance_by_position", "histogram", "verify_steps")
        return AcceptanceSummary(
            accept_length=None,
            draft_accept_length=None,
            by_position=None,
            histogram=None,
            verify_steps=None,
            counted=0,
            rejected=tuple(rejected),
            strata=(),
            missing=dict.fromkeys(names, reason),
        )
    pairs = acceptance_pairs(counted, triple)
    histograms = [row.histogram for row in counted if row.histogram is not None]
    histogram = pooled_histogram(histograms) if len(histograms) == len(counted) else None
    correct = [row.correct_drafts for row in counted if row.correct_drafts is not None]
    steps = sum(row.verify_steps or 0 for row in counted)
    missing = {}
    if histogram is None:
        missing["histogram"] = "the server gave no histogram of accepted drafts for every request"
    by_position = acceptance_by_position(histogram, triple.num_steps) if histogram is not None else None
    if by_position is None and triple.num_steps == 1 and len(correct) == len(counted):
        by_position = (sum(correct) / steps,)
    if by_position is None:
        missing["acceptance_by_position"] = missing["histogram"]
    if len(correct) != len(counted):
        missing["draft_accept_length"] = "the server gave no count of accepted drafts for every request"
    return AcceptanceSummary(
        accept_length=ratio_of_sums([tokens for tokens, _ in pairs.values()], [count for _, count in pairs.values()]),
        draft_accept_length=1 + sum(correct) / steps if len(correct) == len(counted) else None,
        by_position=by_position,
        histogram=histogram,
        verify_steps=steps,
        counted=len(counted),
        rejected=tuple(rejected),
        strata=context_strata(counted),
        missing=missing,
    )


def _why_no_acceptance(triple: Triple | None, rejected: Sequence[str]) -> str:
    if triple is None:
        return "no speculation"
    if rejected:
        return f"every request's counters are inconsistent ({rejected[0]})"
    return "the server gave no speculative counters per request"


def summarise_cell(
    observation: CellObservation, triple: Triple | None, *, server_args: Mapping[str, Any] | None = None
) -> CellSummary:
    """The summary of one cell. `triple` is what the server runs, None for a baseline.

    `server_args` are the server's resolved arguments (`LaunchObservation.effective_args`); with them, limits that make
    the cell unlike others are noted. Failed requests count as failed and in nothing else. Pure; never raises for an
    observation, however poor: what cannot be computed is None with a reason in `missing`.
    """
    duration_s = observation.duration_s
    rows = [row for row in observation.rows if row.error is None]
    acceptance = summarise_acceptance(rows, triple)
    throughput = output_throughput(
        rows,
        duration_s,
        slots=observation.concurrency if observation.request_rate is None else None,
        prompts=observation.prompts if observation.stopped is not None else None,
    )
    steady = steady_throughput(rows, observation.concurrency, duration_s) if rows else "no request succeeded"
    first_token, per_token = ttft_ms(rows), tpot_ms(rows)
    intervals = latency_intervals(first_token, per_token)
    if isinstance(steady, float) and (around := steady_interval(rows, observation.concurrency, duration_s)):
        intervals["steady_throughput"] = around
    text = text_statistics([row.output_ids for row in rows])
    objections = _objections(observation, acceptance, text, server_args or {})
    if isinstance(throughput, str):
        objections.not_ranked.append(throughput)
    average_reason = observation.server_accept_length_reason or "the server reports none"
    reasons = {
        **acceptance.missing,
        "output_throughput": throughput,
        "steady_throughput": steady,
        "ttft_ms_p50": None if first_token else "no request streamed a first token",
        "ttft_ms_p99": None if first_token else "no request streamed a first token",
        "tpot_ms_p50": None if per_token else "no streamed request has two tokens",
        "tpot_ms_p99": None if per_token else "no streamed request has two tokens",
        "cached_token_share": "the server counts no cached tokens" if cached_share(rows) is None else None,
        "distinct_bigram_share": "no output has two tokens" if text.bigram_share is None else None,
        "server_accept_length": average_reason if observation.server_accept_length is None else None,
    }
    return CellSummary(
        concurrency=observation.concurrency,
        workload_id=observation.workload_id,
        requests=len(observation.rows),
        requests_failed=len(observation.rows) - len(rows),
        retries=retries(observation),
        duration_s=duration_s,
        completion_tokens=sum(row.completion_tokens for row in rows),
        verify_steps=acceptance.verify_steps,
        accept_length=acceptance.accept_length,
        acceptance_by_position=acceptance.by_position,
        histogram=acceptance.histogram,
        output_throughput=throughput if isinstance(throughput, Estimate) else None,
        steady_throughput=steady if isinstance(steady, float) else None,
        ttft_ms_p50=percentile(first_token, 50),
        ttft_ms_p99=percentile(first_token, 99),
        tpot_ms_p50=percentile(per_token, 50),
        tpot_ms_p99=percentile(per_token, 99),
        cached_token_share=cached_share(rows),
        distinct_bigram_share=text.bigram_share,
        server_accept_length=observation.server_accept_length,
        missing=tuple((name, reason) for name, reason in sorted(reasons.items()) if isinstance(reason, str)),
        warnings=tuple(objections.warnings),
        not_ranked=tuple(objections.not_ranked),
        started_at_unix_s=observation.started_at_unix_s,
        draft_accept_length=acceptance.draft_accept_length,
        rows_rejected=len(acceptance.rejected),
        degenerate_share=text.degenerate_token_share if text.judged else None,
        mean_in_flight=mean_in_flight(rows, duration_s) if duration_s > 0 else None,
        context_strata=acceptance.strata,
        request_rate=observation.request_rate,
        stopped=observation.stopped,
        prompts=observation.prompts,
        intervals=tuple((name, low, high) for name, (low, high) in sorted(intervals.items())),
        counted_accept_length=counted_accept_length(observation) if triple is not None else None,
    )


def _objections(
    observation: CellObservation, acceptance: AcceptanceSummary, text: TextStatistics, server_args: Mapping[str, Any]
) -> Objections:
    objections = Objections()
    judge_failures(observation, objections)
    if any(row.error is None for row in observation.rows):
        judge_cache(observation, objections)
        judge_load(observation, objections)
        judge_client(observation, objections)
    judge_text(text, objections)
    judge_counters(acceptance.rejected, acceptance.counted, objections)
    ours = acceptance.accept_length.value if acceptance.accept_length else None
    judge_counted(ours, observation, objections)
    judge_server_average(ours, observation.server_accept_length, objections)
    judge_server_args(server_args, observation.concurrency, objections)
    judge_strata(acceptance.strata, objections)
    return objections
