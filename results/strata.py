"""Accept length by context length: a draft with a short position range fails on long prompts only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from results.observations import RequestRow
from results.summary import ContextStratum
from results.trust import Objections

MIN_REQUESTS = 4
MIN_LENGTH_RATIO = 2.0
FALL_SHARE = 0.75
"""A stratum below this share of the best one is worth a sentence."""


def context_strata(rows: Sequence[RequestRow]) -> tuple[ContextStratum, ...]:
    """Up to three strata of equal size by prompt length, shortest first; empty when lengths are alike or rows few.

    `rows` have verify steps. Strata need four requests each and prompts of which the longest is twice the shortest.
    """
    ordered = sorted(rows, key=lambda row: row.prompt_tokens)
    parts = min(3, len(ordered) // MIN_REQUESTS)
    if parts < 2 or ordered[-1].prompt_tokens < MIN_LENGTH_RATIO * max(1, ordered[0].prompt_tokens):
        return ()
    bounds = [round(len(ordered) * part / parts) for part in range(parts + 1)]
    return tuple(_stratum(ordered[low:high]) for low, high in pairwise(bounds))


def _stratum(rows: Sequence[RequestRow]) -> ContextStratum:
    return ContextStratum(
        low_tokens=rows[0].prompt_tokens,
        high_tokens=rows[-1].prompt_tokens,
        requests=len(rows),
        accept_length=sum(row.completion_tokens for row in rows) / sum(row.verify_steps or 0 for row in rows),
    )


def judge_strata(strata: Sequence[ContextStratum], objections: Objections) -> None:
    """Says it when long prompts are accepted much worse than short ones."""
    if len(strata) >= 2 and strata[-1].accept_length < FALL_SHARE * strata[0].accept_length:
        short, long = strata[0], strata[-1]
        objections.warnings.append(
            f"accept length falls with prompt length: {short.accept_length:.2f} up to {short.high_tokens} tokens, "
            f"{long.accept_length:.2f} from {long.low_tokens}: compare the draft's position range with the target's"
        )
