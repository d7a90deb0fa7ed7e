"""The verdicts of an isolation: shares of the gap from matched trials, beside them everything that speaks directly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from results.attributed import gap_of
from results.attribution import DEFAULT_MARGIN, GROUPS, Attribution, Corner, Group, attribute
from results.bounded_attribution import attribute_bounded
from results.corners import MeasuredCorner, differing_groups
from results.explain.explanation import explain
from results.external_row import ExternalRow
from results.isolation_evidence import (
    ParallelPair,
    config_evidence,
    layout_evidence,
    parallel_evidence,
    parallel_fault,
    parallel_pairs,
)
from results.isolation_rows import config_words, corner_row
from results.probed_feed import ProbedFeed, TrainedOn
from results.tp_agreement import TpAgreement
from results.verdicts import CauseVerdict, Explanation
from search_spaces.config import EngineConfig
from search_spaces.model_facts import TargetFacts


@dataclass(frozen=True, kw_only=True)
class IsolationCase:
    """Everything that was measured for one isolation, before any verdict.

    `corners` holds every corner over the groups in which suspect and reference differ. `chosen` is the reference as it
    was chosen; `reference` has tp 1 in its place where suspect and chosen one share a larger TP size, because only
    then does parallelism show. `noise` is the relative difference between repeats, `more_rows` what `explain` is told
    besides (baselines, offline accuracy). `agreements` compare traces of the suspect's layout and topk at two TP sizes.
    """

    study: str
    target: TargetFacts
    suspect: EngineConfig
    reference: EngineConfig
    chosen: EngineConfig
    chosen_as: str
    corners: Mapping[Corner, MeasuredCorner] = field(repr=False)
    feeds: tuple[ProbedFeed, ...] = ()
    trained: TrainedOn | None = None
    margin: float = DEFAULT_MARGIN
    noise: float = 0.0
    more_rows: tuple[ExternalRow, ...] = ()
    agreements: tuple[TpAgreement, ...] = ()

    @property
    def differing(self) -> tuple[Group, ...]:
        return differing_groups(self.suspect, self.reference)


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """The verdicts with what they rest on. `attribution` is None when an end of the gap could not be measured."""

    case: IsolationCase
    attribution: Attribution | None
    pairs: tuple[ParallelPair, ...]
    explanation: Explanation


def conclude(case: IsolationCase) -> Isolation:
    """Verdicts from an isolation's measurements. Pure."""
    attribution, split = _attribution(case)
    absolute = case.margin if attribution is None else attribution.margin
    pairs = parallel_pairs(case.corners, absolute)
    direct = explain(_rows(case))
    split_gap = _SplitGap(case=case, attribution=attribution, groups=split, pairs=pairs)
    verdicts = tuple(_verdict(group, split_gap, direct) for group in GROUPS)
    return Isolation(
        case=case,
        attribution=attribution,
        pairs=pairs,
        explanation=Explanation(verdicts=verdicts, other=direct.other, gap=_gap(split_gap, direct.gap)),
    )


@dataclass(frozen=True, kw_only=True)
class _SplitGap:
    """`groups` are those over which the gap was split."""

    case: IsolationCase
    attribution: Attribution | None
    groups: tuple[Group, ...]
    pairs: tuple[ParallelPair, ...]


def _attribution(case: IsolationCase) -> tuple[Attribution | None, tuple[Group, ...]]:
    """The split gap and the groups over which it was split.

    Where tp 1 was only added to judge parallelism and cannot be measured, the gap is split over the others.
    """
    measured = {corner: it.pairs for corner, it in case.corners.items() if it.pairs}
    ceilings = {
        corner: float(it.config.triple.ceiling) for corner, it in case.corners.items() if it.config.triple is not None
    }
    groups = case.differing
    whole = frozenset(groups)
    if whole not in measured and case.reference != case.chosen:
        groups = tuple(group for group in groups if group != "parallelism")
    if frozenset() not in measured or frozenset(groups) not in measured:
        return None, groups
    shared = set.intersection(*(set(pairs) for corner, pairs in measured.items() if corner <= frozenset(groups)))
    if not shared:
        return None, groups
    options: dict[str, Any] = {"differing": groups, "margin": case.margin, "repeat_noise": case.noise}
    complete = all(corner in measured for corner in case.corners if corner <= frozenset(groups))
    if complete:
        return attribute(measured, **options), groups
    return attribute_bounded(measured, ceilings, **options), groups


def _rows(case: IsolationCase) -> list[ExternalRow]:
    rows: list[ExternalRow] = []
    ends = {frozenset[Group](): "suspect", frozenset(case.differing): "reference"}
    flags = dict.fromkeys(name for measured in case.corners.values() for name, _ in measured.config.flags)
    for corner, measured in case.corners.items():
        role: Any = ends.get(corner)
        label = config_words(measured.config)
        row = corner_row(measured, case.target, label=label, role=role, trained=case.trained, all_flags=flags)
        if row is not None:
            rows.append(row)
    return [*rows, *case.more_rows]


def _verdict(group: Group, gap: _SplitGap, direct: Explanation) -> CauseVerdict:
    case, attribution = gap.case, gap.attribution
    evidence = _evidence(group, case, gap.pairs)
    fault = parallel_fault(case.feeds) if group == "parallelism" else None
    if group not in case.differing:
        verdict = _shared(group, direct.cause(group), split=attribution is not None)
    elif attribution is None or group not in gap.groups:
        verdict = _unmeasured(group, case, evidence)
    else:
        verdict = _by_share(group, case, attribution, gap.pairs, evidence)
    if fault is not None:
        verdict = replace(verdict, verdict="yes", next=_mend(group, case))
    return verdict


def _shared(group: Group, verdict: CauseVerdict, *, split: bool) -> CauseVerdict:
    """Both ends have it, so it has no part of the gap. A ceiling that limits both is said, and is no cause of it."""
    text = "; ".join(filter(None, (f"suspect and reference do not differ in {group}", verdict.evidence)))
    verdict = replace(verdict, share=0.0 if split else None, interval=None, evidence=text)
    return replace(verdict, verdict="no") if group == "config" and verdict.verdict == "yes" else verdict


def _evidence(group: Group, case: IsolationCase, pairs: Sequence[ParallelPair]) -> str:
    if group == "config":
        return config_evidence(case.corners[frozenset()]) if frozenset() in case.corners else ""
    if group == "layout":
        return layout_evidence(case.suspect, case.reference, case.feeds, case.trained)
    return parallel_evidence(pairs, case.feeds, case.agreements)


def _by_share(
    group: Group, case: IsolationCase, attribution: Attribution, pairs: Sequence[ParallelPair], evidence: str
) -> CauseVerdict:
    share, verdict = attribution.shares[group], attribution.verdicts[group]
    answer, following = verdict.answer, ""
    text = f"share of the gap in accept length {verdict.reason}"
    if answer == "yes" and share.value < 0:
        answer, text = "no", f"{text}: the suspect's is the better one"
    elif answer == "yes":
        following = _mend(group, case)
    elif answer == "no" and group == "parallelism" and any(pair.answer == "yes" for pair in pairs):
        answer, following = "undecided", "the effect differs between corners: probe, and measure at further TP sizes"
    if answer == "undecided" and not following:
        following = _decide(group, case, attribution)
    return CauseVerdict(
        cause=group,
        verdict=answer,
        share=round(share.value, 6),
        interval=(round(share.low, 6), round(share.high, 6)),
        evidence="; ".join(filter(None, (text, evidence))),
        next=following,
    )


def _unmeasured(group: Group, case: IsolationCase, evidence: str) -> CauseVerdict:
    """The group differs, but the corners that would tell its part were not measured."""
    lacking = [it for corner, it in case.corners.items() if not it.pairs and (group in corner or not corner)]
    reason = f"{config_words(lacking[0].config)}: {lacking[0].problem}" if lacking else "the corners share no prompt"
    return CauseVerdict(
        cause=group,
        verdict="undecided",
        share=None,
        evidence="; ".join(filter(None, (f"not measured: {reason}", evidence))),
        next=f"measure {config_words(lacking[0].config)}" if lacking else "measure all corners on the same prompts",
    )


def _decide(group: Group, case: IsolationCase, attribution: Attribution) -> str:
    """What would decide an undecided share."""
    missing = [it for it in case.corners.values() if not it.pairs]
    if missing:
        return f"measure {config_words(missing[0].config)} ({missing[0].problem})"
    cut = [it for it in case.corners.values() if it.stopped]
    if cut:
        return f"measure {config_words(cut[0].config)} on every prompt ({cut[0].stopped})"
    more = attribution.verdicts[group].more_prompts
    if more is None:
        return "more prompts cannot decide it: the effect sits on the margin; choose another --margin"
    return f"measure about {more} more prompts (workload.count) in a study of a new name"


def _mend(group: Group, case: IsolationCase) -> str:
    reference = case.reference
    if group == "config":
        return f"run {reference.triple}" + ("" if reference.flags == case.suspect.flags else " with its flags")
    if group == "layout":
        return f"serve it with ids that capture taps {list(reference.layout or ())}"
    return f"serve at tp {reference.tp_size} until it is mended; the probe's numbers are what SGLang's developers need"


def _gap(split: _SplitGap, told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    case, attribution = split.case, split.attribution
    if attribution is None:
        return None if told is None else dict(told)
    gap = dict(told or {})
    ours = gap_of(attribution)
    end = case.corners[frozenset(split.groups)]
    for name, corner in (("suspect", case.corners[frozenset()]), ("reference", end)):
        p1 = None if corner.cell is None or corner.cell.p1 is None else round(corner.cell.p1, 6)
        ours[name] = {**gap.get(name, {}), "label": config_words(corner.config), "p1": p1, **ours[name]}
    missing = [sorted(corner) for corner, it in case.corners.items() if not it.pairs]
    return {
        **gap,
        **ours,
        "differing": list(case.differing),
        "missing_corners": missing,
        "parallelism": [pair.to_json() for pair in split.pairs],
        "traced_agreement": [agreement.to_json() for agreement in case.agreements],
    }
