"""One measured cell by itself, as JSON and as text: for a server that belongs to no study."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from results.acceptance import conditional_acceptance
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
        "counted_accept_length": cell.counted_accept_length,
        "server_accept_length": cell.server_accept_length,
        "output_throughput": estimate_json(cell.output_throughput),
        "steady_throughput": cell.steady_throughput,
        "ttft_ms_p50": cell.ttft_ms_p50,
        "ttft_ms_p99": cell.ttft_ms_p99,
        "tpot_ms_p50": cell.tpot_ms_p50,
        "tpot_ms_p99": cell.tpot_ms_p99,
        "intervals": {name: [low, high] for name, low, high in cell.intervals},
        "cached_token_share": cell.cached_token_share,
        "degenerate_share": cell.degenerate_share,
        "comparable": cell.ranked,
        "objections": list(cell.not_ranked),
        "warnings": list(cell.warnings),
        "missing": dict(cell.missing),
    }


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
    yield "requests", f"{cell.requests} at concurrency {cell.load_label}{failed}, {cell.duration_s:.1f} s"
    if triple is not None:
        length = estimate_words(cell.accept_length, 3)
        of = f" of at most {triple.ceiling}, tokens per verify step"
        yield "accept length", length + of if cell.accept_length else _absent(missing, "accept_length")
        positions = cell.acceptance_by_position
        shares = None if positions is None else " ".join(f"{share:.3f}" for share in positions)
        yield "acceptance by position", shares or _absent(missing, "acceptance_by_position")
    speed = estimate_words(cell.output_throughput, 1)
    yield "output throughput", f"{speed} tokens/s" if cell.output_throughput else _absent(missing, "output_throughput")
    steady = cell.steady_throughput
    words = "" if steady is None else f"{steady:.1f}{_half_width(cell, 'steady_throughput')} tokens/s"
    yield "  steady", words or _absent(missing, "steady_throughput")
    for name, low, high in (
        ("TTFT p50, p99", cell.ttft_ms_p50, cell.ttft_ms_p99),
        ("TPOT p50, p99", cell.tpot_ms_p50, cell.tpot_ms_p99),
    ):
        absent = _absent(missing, f"{name[:4].lower()}_ms_p50")
        around, beyond = (_half_width(cell, f"{name[:4].lower()}_ms_p{percent}") for percent in (50, 99))
        yield name, absent if low is None or high is None else f"{low:.1f}{around}, {high:.1f}{beyond} ms"
    if cell.cached_token_share is not None:
        yield "from the cache", f"{cell.cached_token_share:.0%} of the prompt tokens"


def _half_width(cell: CellSummary, name: str) -> str:
    interval = cell.interval(name)
    return "" if interval is None else f" ±{(interval[1] - interval[0]) / 2:.1f}"


def _absent(missing: dict[str, str], name: str) -> str:
    return f"{NOTHING} ({missing[name]})" if name in missing else NOTHING
