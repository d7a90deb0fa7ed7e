"""A measured attribution as verdicts, in the same form in which `explain` gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from results.attribution import GROUPS, Attribution, Group
from results.summary import Estimate
from results.verdicts import CauseVerdict, Explanation, OtherVerdict


def explanation_of(
    attribution: Attribution,
    *,
    evidence: Mapping[Group, str] | None = None,
    other: Sequence[OtherVerdict] = (),
    gap: Mapping[str, Any] | None = None,
) -> Explanation:
    """Verdicts from shares and their intervals.

    `evidence` adds a sentence of direct evidence for a cause (a ceiling, a probe's finding); `other` and `gap` are
    what else was seen. The verdict is the shares' alone: evidence explains it and does not change it.
    """
    return Explanation(
        verdicts=tuple(_verdict(group, attribution, (evidence or {}).get(group, "")) for group in GROUPS),
        other=tuple(other),
        gap={**gap_of(attribution), **(gap or {})},
    )


def _verdict(group: Group, attribution: Attribution, evidence: str) -> CauseVerdict:
    share, verdict = attribution.shares[group], attribution.verdicts[group]
    following = ""
    if verdict.answer == "undecided":
        more = verdict.more_prompts
        following = (
            f"measure {more} more prompts" if more is not None else "more prompts cannot decide it: at the margin"
        )
    return CauseVerdict(
        cause=group,
        verdict=verdict.answer,
        share=round(share.value, 6),
        interval=(round(share.low, 6), round(share.high, 6)),
        evidence="; ".join(filter(None, (verdict.reason, evidence))),
        next=following,
    )


def gap_of(attribution: Attribution) -> dict[str, Any]:
    """The gap of the JSON output: both ends, the whole gap, the margin, and every interaction."""
    return {
        "metric": "accept_length",
        "suspect": {"accept_length": round(attribution.suspect_value, 6)},
        "reference": {"accept_length": round(attribution.reference_value, 6)},
        **_estimate(attribution.gap),
        "relative": round(attribution.gap.value / attribution.reference_value, 6),
        "margin": round(attribution.margin, 6),
        "prompts": attribution.prompts,
        "interactions": [
            {"groups": sorted(groups), **_estimate(estimate)} for groups, estimate in attribution.interactions.items()
        ],
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": round(estimate.value, 6), "interval": [round(estimate.low, 6), round(estimate.high, 6)]}
