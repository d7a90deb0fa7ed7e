"""The accept length of one row, by the best founded way, and every contradiction met on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from results.acceptance import rate_definition
from results.external_row import ExternalRow
from search_spaces.config import Triple

CONSISTENT = 0.02
"""Relative difference up to which two ways to the same accept length agree (rounding, the prefill's own token)."""
SUM_TOLERANCE = 0.05
"""The same for a sum of rounded positions."""


@dataclass(frozen=True, kw_only=True)
class AcceptLength:
    """`value` and `source`, the way it was obtained (None and empty without one), and every contradiction.

    `faults` are all contradictions in words. `rejections` are those that no server can produce: counts that break
    their identities, and lengths outside 1 to the ceiling. A row with one says nothing about its cause.
    """

    value: float | None
    source: str
    faults: tuple[str, ...]
    rejections: tuple[str, ...]


def accept_length(row: ExternalRow, triple: Triple | None, positions: tuple[float, ...] | None) -> AcceptLength:
    """Counters win over the histogram, drafts and a stated value."""
    ways = list(_ways(row, triple, positions))
    rejections = [*_broken_identities(row, triple)]
    faults = [*_rate_faults(row, triple), *_position_faults(row)]
    if not ways:
        return AcceptLength(value=None, source="", faults=(*rejections, *faults), rejections=tuple(rejections))
    name, value = ways[0]
    faults += [
        f"{other} says {number:.3f}, {name} {value:.3f}"
        for other, number in ways[1:]
        if abs(number - value) > (SUM_TOLERANCE if other == _SUM else CONSISTENT) * value
    ]
    if value < 1 - 1e-6:
        rejections.append(f"an accept length of {value:.2f} cannot be: every verify step gives at least one token")
    elif triple and value > triple.ceiling * (1 + CONSISTENT):
        rejections.append(f"an accept length of {value:.2f} cannot be: its ceiling is num_steps + 1 = {triple.ceiling}")
    return AcceptLength(value=value, source=name, faults=(*rejections, *faults), rejections=tuple(rejections))


_SUM = "the sum of the positions"


def _ways(row: ExternalRow, triple: Triple | None, positions: tuple[float, ...] | None) -> Iterator[tuple[str, float]]:
    if row.verify_steps and row.completion_tokens is not None:
        yield "completion tokens / verify steps", row.completion_tokens / row.verify_steps
    if row.histogram and sum(row.histogram):
        accepted = sum(i * count for i, count in enumerate(row.histogram))
        yield "the histogram", 1 + accepted / sum(row.histogram)
    if row.drafts and row.accepted is not None and row.accepted <= row.drafts:
        if row.verify_steps:
            yield "accepted drafts / verify steps", 1 + row.accepted / row.verify_steps
        elif triple and _ratio_kind(row, triple) != "tokens_over_draft_tokens":
            yield "accepted / drafts", 1 + (triple.num_draft_tokens - 1) * row.accepted / row.drafts
    if row.accepted is not None and row.verify_steps and not row.drafts:
        yield "accepted drafts / verify steps", 1 + row.accepted / row.verify_steps
    if row.accept_length is not None:
        yield "the stated accept length", row.accept_length
    yield from _steps_from_counts(row, triple)
    if row.acceptance_by_position and positions and (triple is None or len(positions) >= triple.num_steps):
        yield _SUM, 1 + sum(positions)


def _steps_from_counts(row: ExternalRow, triple: Triple | None) -> Iterator[tuple[str, float]]:
    """Verify steps that nobody counted, from what every step gives: n - 1 proposed drafts, and one token of its own."""
    if row.verify_steps or not row.completion_tokens:
        return
    if row.drafts and triple and triple.num_draft_tokens > 1:
        yield (
            "completion tokens / (drafts / (n - 1))",
            row.completion_tokens * (triple.num_draft_tokens - 1) / row.drafts,
        )
    elif row.accepted is not None and row.accepted < row.completion_tokens:
        yield "completion / (completion - accepted)", row.completion_tokens / (row.completion_tokens - row.accepted)


def _ratio_kind(row: ExternalRow, triple: Triple | None) -> str | None:
    """Which of the two definitions of an acceptance rate accepted / drafts follows; `neither` when it fits none."""
    if not row.drafts or row.accepted is None or row.accept_length is None or triple is None or row.verify_steps:
        return None
    tokens = triple.num_draft_tokens
    if tokens < 2:
        return None
    return rate_definition(row.accept_length, tokens, row.accepted / row.drafts) or "neither"


def _reported_rate(row: ExternalRow, triple: Triple | None) -> Iterator[str]:
    """A rate given among the flags is named when it is not (AL - 1)/(n - 1); it is never used."""
    rate = row.flags.get("accept_rate")
    if not isinstance(rate, int | float) or row.accept_length is None or triple is None or triple.num_draft_tokens < 2:
        return
    kind = rate_definition(row.accept_length, triple.num_draft_tokens, rate / 100 if rate > 1 else float(rate))
    if kind == "tokens_over_draft_tokens":
        yield f"accept_rate {rate:g} is AL/n, the rate of older versions, not (AL - 1)/(n - 1)"
    elif kind is None:
        yield f"accept_rate {rate:g} fits neither (AL - 1)/(n - 1) nor AL/n"


def _broken_identities(row: ExternalRow, triple: Triple | None) -> Iterator[str]:
    """Counts of one run that do not fit each other. SGLang's own always do (per request, hence in every sum)."""
    if row.histogram and sum(row.histogram):
        steps, accepted = sum(row.histogram), sum(i * count for i, count in enumerate(row.histogram))
        if row.verify_steps is not None and steps != row.verify_steps:
            yield f"the histogram counts {steps} verify steps, the row says {row.verify_steps}"
        if row.accepted is not None and accepted != row.accepted:
            yield f"the histogram accepts {accepted} drafts, the row says {row.accepted}"
        if triple and any(row.histogram[triple.num_steps + 1 :]):
            yield f"a verify step accepted more than num_steps = {triple.num_steps} drafts: other numbers ran"
    if row.drafts is not None and row.accepted is not None and row.accepted > row.drafts:
        yield f"{row.accepted} accepted of {row.drafts} drafts"
    if row.drafts is not None and row.verify_steps and triple:
        each = triple.num_draft_tokens - 1
        if row.drafts != row.verify_steps * each:
            yield f"{row.drafts} drafts are not {row.verify_steps} verify steps x {each}"


def _rate_faults(row: ExternalRow, triple: Triple | None) -> Iterator[str]:
    yield from _reported_rate(row, triple)
    kind = _ratio_kind(row, triple)
    if kind == "tokens_over_draft_tokens":
        yield "accepted / drafts is AL/n, the rate of older versions, not (AL - 1)/(n - 1)"
    elif kind == "neither":
        yield "accepted / drafts fits neither (AL - 1)/(n - 1) nor AL/n"


def _position_faults(row: ExternalRow) -> Iterator[str]:
    given = row.acceptance_by_position or ()
    if any(later > earlier + 1e-6 for earlier, later in pairwise(given)):
        yield "acceptance by position rises, as unconditional shares cannot: are they conditional?"
    elif given and row.accept_length is not None:
        conditional, product = 1.0, 1.0
        for share in given:
            product *= share
            conditional += product
        off = abs(1 + sum(given) - row.accept_length)
        if off > SUM_TOLERANCE * row.accept_length and abs(conditional - row.accept_length) < off / 4:
            yield "acceptance by position looks conditional: as products the shares fit the accept length"
