"""Direct evidence, and what the first position says: healthy heads and destroyed ones lie far apart."""

from __future__ import annotations

from dataclasses import dataclass

from results.explain.reading import Range
from results.stats.effects import Answer

HEALTHY_P1 = 0.6
DESTROYED_P1 = 0.3
"""Healthy heads accept 0.6 to 0.8 of first drafts, mismatched ones a few hundredths; in between nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One cause's direct evidence. `next` is empty when nothing more is needed."""

    answer: Answer
    text: str
    next: str = ""


def health(p1: Range | None) -> Answer:
    """Whether the first position is healthy for certain: yes, no (destroyed) or undecided."""
    if p1 is None:
        return "undecided"
    if p1.high <= DESTROYED_P1:
        return "no"
    return "yes" if p1.low >= HEALTHY_P1 else "undecided"


def uncertain(p1: Range | None) -> str:
    """What an undecided first position leaves open, in words."""
    if p1 is None:
        return "nothing is known of the first position"
    if p1.known:
        return "neither healthy nor destroyed"
    likely = (
        "probably healthy" if p1.estimate >= HEALTHY_P1 else "probably low" if p1.low < DESTROYED_P1 else "middling"
    )
    return f"{likely}, but the accept length alone leaves {p1.low:.2f} to {p1.high:.2f} open"
