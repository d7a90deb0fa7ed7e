"""From rows to an explanation: leave out what is not true, compare what is comparable, and claim no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from results.attribution import GROUPS, Group
from results.explain import causes, conditions, heads, truth
from results.explain.cases import Case, build_case
from results.explain.comparison import DIFFERENT, EQUAL, compare, prompt_noise
from results.explain.evidence import Evidence, health
from results.explain.gap import describe, is_offline, shares
from results.explain.reading import Reading, read
from results.explain.sameness import is_known
from results.explain.unsplit import unsplit
from results.external_row import ExternalRow
from results.stats.effects import Answer
from results.verdicts import CauseVerdict, Explanation, OtherVerdict
from search_spaces.layouts import one_apart

Share = tuple[float, tuple[float, float] | None]


def explain(rows: Sequence[ExternalRow]) -> Explanation:
    """Verdicts on the three causes and on everything that looks like them. Rows may come from different sources."""
    everything = [read(row) for row in rows]
    offline = [reading for reading in everything if is_offline(reading)]
    served = [reading for reading in everything if reading not in offline]
    found = [
        truth.simulated(served),
        truth.degenerate(served),
        truth.metric(served),
        conditions.cache(served),
        conditions.sampling(served),
        conditions.harness(served),
    ]
    usable, reasons = _usable(served, found[0])
    lengths = conditions.context_length(usable)
    if lengths is not None and lengths.verdict == "yes":
        usable = conditions.shortest_contexts(usable)
    case = build_case(usable)
    if case.suspect is None:
        return _nothing(found, reasons, served)
    found += [lengths, heads.id_shift(case), heads.head_or_weights(case)]
    split = shares(case)
    baselines = [reading for reading in served if reading.row.role == "baseline"]
    gap = describe(case, offline, baselines)
    verdicts = tuple(_verdict(group, case, split.get(group)) for group in GROUPS)
    return Explanation(verdicts=_with_cost(verdicts, gap), other=_kept(found), gap=gap)


def _with_cost(verdicts: tuple[CauseVerdict, ...], gap: Mapping[str, Any] | None) -> tuple[CauseVerdict, ...]:
    """Advice when a server is slower than its baseline and acceptance is not to blame for it."""
    speedup = ((gap or {}).get("throughput") or {}).get("speedup", 1.0)
    if speedup >= 1 or any(verdict.verdict == "yes" for verdict in verdicts) or verdicts[0].verdict != "no":
        return verdicts
    advice = (
        f"the ceiling does not explain {speedup:.2f} x the baseline's throughput, the cost of a verify step may:"
        " measure fewer draft tokens, a lower concurrency, and with CUDA graphs"
    )
    following = "; ".join(filter(None, (verdicts[0].next, advice)))
    return (replace(verdicts[0], next=following), *verdicts[1:])


def _kept(found: Sequence[OtherVerdict | None]) -> tuple[OtherVerdict, ...]:
    return tuple(verdict for verdict in found if verdict is not None)


def _usable(served: Sequence[Reading], simulated: OtherVerdict | None) -> tuple[list[Reading], list[str]]:
    """Readings that verdicts may rest on, and why the others may not."""
    usable, reasons = [], []
    inferred = simulated is not None and simulated.verdict != "no" and not any(map(truth.is_simulated, served))
    cold = [reading.model for reading in served if not conditions.is_warm(reading) and reading.accept_length]
    for reading in served:
        if reading.row.role == "baseline":
            continue
        if truth.is_simulated(reading) or inferred:
            reasons.append(f"{reading.name}: acceptance is simulated, or seems to be")
        elif truth.is_degenerate(reading):
            reasons.append(f"{reading.name}: degenerate output")
        elif reading.rejections:
            reasons.append(f"{reading.name}: {reading.rejections[0]}")
        elif conditions.is_warm(reading) and reading.model in cold:
            reasons.append(f"{reading.name}: warm cache")
        else:
            usable.append(reading)
    # controls stand beside what is judged; when that was left out they are not judged in its place
    told = [r for r in usable if r.row.role != "control" and (r.accept_length or r.triple or r.layout_known)]
    if reasons and not told:
        usable = []
    return usable, reasons


_TELLING = ("reason:", "interval", "no speculation", "adjusted")
"""Words of the notes that say why a row has no accept length, or what is known without one."""


def _nothing(found: Sequence[OtherVerdict | None], reasons: Sequence[str], served: Sequence[Reading]) -> Explanation:
    """No usable accept length: every cause is undecided, and the reason is named."""
    notes = [note for reading in served for note in reading.row.notes if any(word in note for word in _TELLING)]
    deaths = [f"the server died: {reading.row.death.line}" for reading in served if reading.row.death]
    text = "; ".join([*reasons[:3], *deaths[:1], *notes[:2]]) or "no row has an accept length"
    advice = "measure the accept length per request (completion_tokens / spec_verify_ct) on real prompts, cache flushed"
    if any("simulated" in reason for reason in reasons):
        advice = (
            f"unset {truth.SIMULATE} where the server starts (or find what forces the accept length); then {advice}"
        )
    return Explanation(
        verdicts=tuple(CauseVerdict(cause=group, verdict="undecided", evidence=text, next=advice) for group in GROUPS),
        other=_kept(found),
        gap=None,
    )


_DIRECT = {"config": causes.config, "layout": causes.layout, "parallelism": causes.parallelism}


def _verdict(group: Group, case: Case, share: Share | None) -> CauseVerdict:
    direct = _DIRECT[group](case)
    if group == "config" and (found := causes.only_flag(case)) is not None:
        direct = found
    if case.reference is None:
        return _from(group, direct, None)
    if group == "layout" and _unexplained(case):
        return _layout_not_named(case, direct)
    if group in case.unsure or (group in case.differing and share is None):
        return unsplit(group, case, direct)
    if share is None:
        return _not_differing(group, case, direct)
    answer, text = _by_share(group, case, share)
    if direct.answer == "yes":
        answer = "yes"
    elif answer == "no" and direct.answer == "undecided" and health(case.reference.p1) != "yes":
        answer = "undecided"
    following = "" if answer == "no" else direct.next or _paired_advice(case)
    return CauseVerdict(
        cause=group,
        verdict=answer,
        share=round(share[0], 6),
        interval=None if share[1] is None else (round(share[1][0], 6), round(share[1][1], 6)),
        evidence=f"{text}; {direct.text}",
        next=following,
    )


def _from(group: Group, evidence: Evidence, share: float | None) -> CauseVerdict:
    following = "" if evidence.answer == "no" else evidence.next
    return CauseVerdict(cause=group, verdict=evidence.answer, share=share, evidence=evidence.text, next=following)


def _not_differing(group: Group, case: Case, direct: Evidence) -> CauseVerdict:
    """Equal in suspect and reference: no part of this gap, and no fault either when the reference clears it."""
    if direct.answer != "undecided" or not _clears(case, group):
        # A fault that both share has a price, but no part in what sets them apart.
        return _from(group, direct, None if direct.answer == "yes" else 0.0)
    text = f"the reference has the same and does better: no part of this gap; {direct.text}"
    return CauseVerdict(cause=group, verdict="no", share=0.0, evidence=text)


def _layout_not_named(case: Case, direct: Evidence) -> CauseVerdict:
    assert case.reference is not None
    text = f"{direct.text}; {case.reference.name} does better with the same config and parallelism, and its layout"
    return CauseVerdict(
        cause="layout",
        verdict="yes" if direct.answer == "yes" else "undecided",
        evidence=f"{text} or the suspect's is not named",
        next="give layout_ids or layout_taps of both, and the taps the draft was trained on",
    )


def _clears(case: Case, group: Group) -> bool:
    """Whether the reference clears what it shares: it is better for a known reason, or shows a healthy layout."""
    assert case.suspect is not None
    assert case.reference is not None
    trained, taps = case.suspect.row.trained_taps, case.suspect.taps
    if group == "layout" and trained is not None and taps is not None and trained != taps:
        return False
    state = health(case.reference.p1)
    against = compare(case.suspect, case.reference)
    better = against is not None and against.different == "yes" and against.relative > 0 and bool(case.differing)
    return (group == "layout" and state == "yes") or (better and state != "no")


def _unexplained(case: Case) -> bool:
    """A gap between two rows of which nothing known differs, while the layout of one is not named."""
    if case.suspect is None or case.reference is None or case.differing or "config" in case.unsure:
        return False
    loads = {case.suspect.row.concurrency, case.reference.row.concurrency} - {None}
    if len(loads) > 1:
        return False
    against = compare(case.suspect, case.reference)
    named = is_known(case.suspect, "layout") and is_known(case.reference, "layout")
    return against is not None and against.different == "yes" and not named


def _by_share(group: Group, case: Case, share: Share) -> tuple[Answer, str]:
    """The answer that a share of the gap gives by itself."""
    assert case.suspect is not None
    assert case.reference is not None
    larger = max(case.suspect.accept_length or 1.0, case.reference.accept_length or 1.0)
    value, interval = share
    size = abs(value) / larger
    text = f"takes {value:+.2f} of the gap in accept length" + (
        "" if interval is None else f" ({interval[0]:+.2f} to {interval[1]:+.2f})"
    )
    if value < 0 and size > EQUAL:
        return "no", f"{text}: the suspect's is the better one"
    excludes_zero = interval is not None and (interval[0] > 0 or interval[1] < 0)
    if group == "layout" and size <= DIFFERENT and _shifted(case):
        return "undecided", f"{text}: as a shift by one layer would"
    if size <= EQUAL:
        return ("undecided" if excludes_zero and size > EQUAL / 2 else "no"), text
    if interval is None:
        certain = size > max(DIFFERENT, prompt_noise(case.suspect, case.reference))
        return ("yes" if certain else "undecided"), text
    return ("yes" if excludes_zero else "undecided"), text


def _shifted(case: Case) -> bool:
    assert case.suspect is not None
    assert case.reference is not None
    first, second = (reading.layout[1] for reading in (case.suspect, case.reference))
    return isinstance(first, tuple) and isinstance(second, tuple) and one_apart(first, second)


def _paired_advice(case: Case) -> str:
    return "measure both ends on the same prompts at temperature 0, with counts of verify steps, to narrow the interval"
