"""Verdicts as they are printed and scripted against: three causes, other kinds, and the gap they explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from results.attribution import GROUPS, Group
from results.stats.effects import Answer

VERDICT_SCHEMA = 1

OtherKind = Literal[
    "cache",
    "context_length",
    "sampling",
    "simulated",
    "degenerate",
    "harness",
    "head_or_weights",
    "id_shift",
    "metric",
]
OTHER_KINDS: tuple[OtherKind, ...] = get_args(OtherKind)


@dataclass(frozen=True, kw_only=True)
class CauseVerdict:
    """Whether one of the three groups costs acceptance.

    `share` is its part of the gap in accept length, None when no gap could be split; `interval` its 95 % interval,
    None when the evidence carries no spread. `evidence` is a sentence or two, `next` what to measure (or do) next,
    empty when nothing is needed.
    """

    cause: Group
    verdict: Answer
    share: float | None = None
    interval: tuple[float, float] | None = None
    evidence: str
    next: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "cause": self.cause,
            "verdict": self.verdict,
            "share": self.share,
            "interval": None if self.interval is None else list(self.interval),
            "evidence": self.evidence,
            "next": self.next,
        }


@dataclass(frozen=True, kw_only=True)
class OtherVerdict:
    """Whether something else, that looks like one of the three, is at work."""

    kind: OtherKind
    verdict: Answer
    evidence: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "verdict": self.verdict, "evidence": self.evidence}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Three causes in fixed order, the other kinds that were looked at, and the gap (None without one).

    ValueError unless there is exactly one verdict for each cause.
    """

    verdicts: tuple[CauseVerdict, ...]
    other: tuple[OtherVerdict, ...]
    gap: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        if tuple(verdict.cause for verdict in self.verdicts) != GROUPS:
            raise ValueError(f"needs one verdict for each of {GROUPS}, in that order")

    def cause(self, group: Group) -> CauseVerdict:
        return self.verdicts[GROUPS.index(group)]

    def kind(self, kind: OtherKind) -> OtherVerdict | None:
        return next((other for other in self.other if other.kind == kind), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": VERDICT_SCHEMA,
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "other": [other.to_json() for other in self.other],
            "gap": None if self.gap is None else dict(self.gap),
        }
