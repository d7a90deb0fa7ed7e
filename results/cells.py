"""From one cell's raw rows to its summary: numbers with intervals, reasons for missing ones, and objections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from results.cell_acceptance import AcceptanceSummary, summarise_acceptance
from results.degenerate import TextStatistics, text_statistics
from results.missing_values import cross_check_reasons, latency_reasons, text_reasons
from results.observations import CellObservation, LaunchObservation, RequestRow
from results.stats.ratios import Pair
from results.strata import judge_strata
from results.summary import CellSummary, Estimate
from results.throughput import (
    e2e_ms,
    itl_ms,
    latency_intervals,
    mean_in_flight,
    most_in_flight,
    output_throughput,
    percentile,
    steady_interval,
    steady_throughput,
    tokens_per_chunk,
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
    judge_simulated,
    judge_text,
    retries,
)
from search_spaces.config import Triple


def throughput_pairs(rows: Sequence[RequestRow]) -> dict[str, Pair]:
    """(tokens, latency in seconds) per prompt over requests that succeeded: what paired comparisons take."""
    pairs: dict[str, Pair] = defaultdict(lambda: (0.0, 0.0))
    for row in rows:
        if row.error is None:
            tokens, latency = pairs[row.prompt_id]
            pairs[row.prompt_id] = (tokens + row.completion_tokens, latency + row.finished_s - row.sent_s)
    return dict(pairs)


def summarise_cell(
    observation: CellObservation,
    triple: Triple | None,
    *,
    server_args: Mapping[str, Any] | None = None,
    simulated: str | None = None,
) -> CellSummary:
    """The summary of one cell. `triple` is what the server runs, None for a baseline.

    `server_args` are the server's resolved arguments (`LaunchObservation.effective_args`); with them, limits that make
    the cell unlike others are noted. `simulated` is what is known to replace acceptance on that server
    (`LaunchObservation.simulated`). Failed requests count as failed and in nothing else. Pure; never raises for an
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
    first_token, per_token, whole, between_chunks = ttft_ms(rows), tpot_ms(rows), e2e_ms(rows), itl_ms(rows)
    of_requests = {"ttft_ms": first_token, "tpot_ms": per_token, "e2e_ms": whole}
    intervals = latency_intervals(of_requests)
    if isinstance(steady, float) and (around := steady_interval(rows, observation.concurrency, duration_s)):
        intervals["steady_throughput"] = around
    text = text_statistics([row.output_ids for row in rows])
    objections = _objections(observation, acceptance, text, server_args or {})
    if triple is not None:
        judge_simulated(simulated, acceptance.histogram, triple.num_steps, objections)
    if isinstance(throughput, str):
        objections.not_ranked.append(throughput)
    reasons = {
        **acceptance.missing,
        "output_throughput": throughput,
        "steady_throughput": steady,
        **latency_reasons(rows, {**of_requests, "itl_ms": between_chunks}),
        **text_reasons(rows, text),
        **cross_check_reasons(observation, triple),
        "mean_in_flight": "the cell has no duration" if duration_s <= 0 else None,
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
        mean_in_flight=mean_in_flight(observation.rows, duration_s) if duration_s > 0 else None,
        most_in_flight=most_in_flight(observation.rows),
        e2e_ms_p50=percentile(whole, 50),
        e2e_ms_p99=percentile(whole, 99),
        itl_ms_p50=percentile(between_chunks, 50),
        itl_ms_p99=percentile(between_chunks, 99),
        tokens_per_chunk=tokens_per_chunk(rows) if between_chunks else None,
        context_strata=acceptance.strata,
        request_rate=observation.request_rate,
        stopped=observation.stopped,
        prompts=observation.prompts,
        intervals=tuple((name, low, high) for name, (low, high) in sorted(intervals.items())),
        counted_accept_length=counted_accept_length(observation) if triple is not None else None,
    )


def summarised(cell: CellObservation, launch: LaunchObservation | None, triple: Triple | None) -> CellSummary:
    """`summarise_cell` with what is known of the server that was launched for it."""
    if launch is None:
        return summarise_cell(cell, triple)
    return summarise_cell(cell, triple, server_args=launch.effective_args, simulated=launch.simulated)


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
    judge_server_args(server_args, observation.concurrency or most_in_flight(observation.rows), objections)
    judge_strata(acceptance.strata, objections)
    return objections
