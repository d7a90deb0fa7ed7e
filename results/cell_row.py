"""One measured cell by itself, as JSON and as text: with every number, and why one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from results.acceptance import conditional_acceptance
from results.loads import load_words
from results.summary import CellSummary, Estimate
from results.table import NOTHING, estimate_words
from search_spaces.config import Triple


def estimate_json(estimate: Estimate | None) -> dict[str, float | int] | None:
    """`value`, `low`, `high` (95 % interval) and `count` (units of resampling)."""
    if estimate is None:
        return None
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "count": estimate.count}


def cell_json(cell: CellSummary, triple: Triple | None) -> dict[str, Any]:
    """Every number of a cell with why it may be missing, and whether it may be compared. Plain JSON values."""
    positions = cell.acceptance_by_position
    return {
        "concurrency": cell.concurrency,
        "request_rate": cell.request_rate,
        "most_in_flight": cell.most_in_flight,
        "mean_in_flight": cell.mean_in_flight,
        "requests": cell.requests,
        "requests_failed": cell.requests_failed,
        "retries": cell.retries,
        "prompts": cell.prompts,
        "stopped": cell.stopped,
        "duration_s": cell.duration_s,
        "completion_tokens": cell.completion_tokens,
        "verify_steps": cell.verify_steps,
        "accept_length": estimate_json(cell.accept_length),
        "ceiling": None if triple is None else triple.ceiling,
        "p1": cell.p1,
        "acceptance_by_position": None if positions is None else list(positions),
        "conditional_acceptance": None if positions is None else list(conditional_acceptance(positions)),
        "histogram": None if cell.histogram is None else list(cell.histogram),
        "draft_accept_length": cell.draft_accept_length,
        "requests_rejected": cell.rows_rejected,
        "context_strata": [asdict(stratum) for stratum in cell.context_strata],
        "counted_accept_length": cell.counted_accept_length,
        "server_accept_length": cell.server_accept_length,
        "output_throughput": estimate_json(cell.output_throughput),
        "steady_throughput": cell.steady_throughput,
        "ttft_ms_p50": cell.ttft_ms_p50,
        "ttft_ms_p99": cell.ttft_ms_p99,
        "tpot_ms_p50": cell.tpot_ms_p50,
        "tpot_ms_p99": cell.tpot_ms_p99,
        "e2e_ms_p50": cell.e2e_ms_p50,
        "e2e_ms_p99": cell.e2e_ms_p99,
        "itl_ms_p50": cell.itl_ms_p50,
        "itl_ms_p99": cell.itl_ms_p99,
        "itl_is_per_chunk": cell.itl_is_per_chunk,
        "tokens_per_chunk": cell.tokens_per_chunk,
        "intervals": {name: [low, high] for name, low, high in cell.intervals},
        "cached_token_share": cell.cached_token_share,
        "distinct_bigram_share": cell.distinct_bigram_share,
        "degenerate_share": cell.degenerate_share,
        "comparable": cell.ranked,
        "objections": list(cell.not_ranked),
        "warnings": list(cell.warnings),
        "missing": _missing(cell, triple),
    }


def _missing(cell: CellSummary, triple: Triple | None) -> dict[str, str]:
    missing = dict(cell.missing)
    if triple is None:
        missing["ceiling"] = "no speculation"
    if "acceptance_by_position" in missing:
        missing["conditional_acceptance"] = missing["acceptance_by_position"]
    return missing


def cell_text(cell: CellSummary, triple: Triple | None) -> str:
    """The same for a terminal: one line a number, then what is to be known about them."""
    lines = [f"{name:<22}{value}" for name, value in _numbers(cell, triple)]
    lines += [f"NOT COMPARABLE: {objection}" for objection in cell.not_ranked]
    lines += [f"warning: {warning}" for warning in cell.warnings]
    if cell.stopped is not None:
        lines.append(f"ended early: {cell.stopped}")
    return "\n".join(lines)


def _numbers(cell: CellSummary, triple: Triple | None) -> Iterator[tuple[str, str]]:
    missing = dict(cell.missing)
    failed = f", {cell.requests_failed} failed" if cell.requests_failed else ""
    retried = f", {cell.retries} retries" if cell.retries else ""
    yield "requests", f"{cell.requests} at {load_words(cell.load)}{failed}{retried}, {cell.duration_s:.1f} s"
    if triple is not None:
        length = estimate_words(cell.accept_length, 3)
        of = f" of at most {triple.ceiling}, tokens per verify step"
        yield "accept length", length + of if cell.accept_length else _absent(missing, "accept_length")
        positions = cell.acceptance_by_position
        absent = _absent(missing, "acceptance_by_position")
        yield "acceptance by position", absent if positions is None else _shares(positions)
        yield "  where reached", absent if positions is None else _shares(conditional_acceptance(positions))
        yield "  from counters", _cross_check(cell.counted_accept_length, missing, "counted_accept_length")
        yield "  server's average", _cross_check(cell.server_accept_length, missing, "server_accept_length")
    speed = estimate_words(cell.output_throughput, 1)
    yield "output throughput", f"{speed} tokens/s" if cell.output_throughput else _absent(missing, "output_throughput")
    steady = cell.steady_throughput
    words = "" if steady is None else f"{steady:.1f}{_half_width(cell, 'steady_throughput')} tokens/s"
    yield "  steady", words or _absent(missing, "steady_throughput")
    for name, low, high in (
        ("TTFT p50, p99", cell.ttft_ms_p50, cell.ttft_ms_p99),
        ("TPOT p50, p99", cell.tpot_ms_p50, cell.tpot_ms_p99),
        ("E2E p50, p99", cell.e2e_ms_p50, cell.e2e_ms_p99),
    ):
        prefix = f"{name.split()[0].lower()}_ms"
        absent = _absent(missing, f"{prefix}_p50")
        around, beyond = (_half_width(cell, f"{prefix}_p{percent}") for percent in (50, 99))
        yield name, absent if low is None or high is None else f"{low:.1f}{around}, {high:.1f}{beyond} ms"
    chunk = "" if not cell.itl_is_per_chunk else f" between chunks of {cell.tokens_per_chunk:.1f} tokens"
    low, high = cell.itl_ms_p50, cell.itl_ms_p99
    absent = _absent(missing, "itl_ms_p50")
    yield "ITL p50, p99", absent if low is None or high is None else f"{low:.1f}, {high:.1f} ms{chunk}"
    for stratum in cell.context_strata:
        prompts = f"{stratum.requests} prompts of {stratum.low_tokens} to {stratum.high_tokens} tokens"
        yield "by prompt length", f"accept length {stratum.accept_length:.3f} of {prompts}"
    if cell.cached_token_share is not None:
        yield "from the cache", f"{cell.cached_token_share:.0%} of the prompt tokens"


def _shares(shares: Sequence[float | None]) -> str:
    return " ".join(NOTHING if share is None else f"{share:.3f}" for share in shares)


def _cross_check(length: float | None, missing: dict[str, str], name: str) -> str:
    return _absent(missing, name) if length is None else f"{length:.3f}"


def _half_width(cell: CellSummary, name: str) -> str:
    interval = cell.interval(name)
    return "" if interval is None else f" ±{(interval[1] - interval[0]) / 2:.1f}"


def _absent(missing: dict[str, str], name: str) -> str:
    return f"{NOTHING} ({missing[name]})" if name in missing else NOTHING
