"""The acceptance of a cell, from the counters of its requests: those that contradict each other are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.acceptance import acceptance_by_position, counter_problem, pooled_histogram
from results.observations import RequestRow
from results.stats.ratios import Pair, ratio_of_sums
from results.strata import context_strata
from results.summary import ContextStratum, Estimate
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
        reason = _why_no_acceptance(triple, rows, rejected)
        names = ("accept_length", "draft_accept_length", "acceptance_by_position", "p1", "histogram", "verify_steps")
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
        missing["acceptance_by_position"] = missing["p1"] = missing["histogram"]
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


def _why_no_acceptance(triple: Triple | None, rows: Sequence[RequestRow], rejected: Sequence[str]) -> str:
    if triple is None:
        return "no speculation"
    if rejected:
        return f"every request's counters are inconsistent ({rejected[0]})"
    succeeded = [row for row in rows if row.error is None]
    if not succeeded:
        return "no request succeeded"
    if any(row.verify_steps == 0 for row in succeeded):
        return "no request took a verify step"
    return "the server gave no speculative counters per request"
