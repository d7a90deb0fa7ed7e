"""Verdicts where the gap cannot be split: a corner was not measured, or a row leaves out what it ran with."""

from __future__ import annotations

from collections.abc import Iterator

from results.attribution import Group
from results.explain.cases import Case
from results.explain.comparison import compare
from results.explain.evidence import Evidence, health
from results.explain.sameness import same_numbers, unnamed_flags
from results.stats.effects import Answer
from results.verdicts import CauseVerdict


def unsplit(group: Group, case: Case, direct: Evidence) -> CauseVerdict:
    """Suspect and reference differ in several groups, or may, and a corner between them was not measured."""
    taken = [" and ".join(sorted(corner)) for corner in case.missing if corner]
    advice = []
    if case.unsure:
        advice.append(f"name the {' and the '.join(_unnamed(case))} of both, in the same way")
    if taken:
        advice.append(
            f"measure the suspect with {' / with '.join(taken[:3])} taken from the reference, to split the gap"
        )
    against = compare(case.reference, case.suspect) if case.reference and case.suspect else None
    answer: Answer = direct.answer
    apart = against is not None and against.different != "no"
    if answer == "no" and apart and group != "parallelism" and not _sure_of_itself(group, case):
        answer = "undecided"
    text = "; ".join((direct.text, *_differences(case)))
    return CauseVerdict(
        cause=group, verdict=answer, evidence=text, next="; ".join(filter(None, (*advice, direct.next)))
    )


def _unnamed(case: Case) -> Iterator[str]:
    """What only one of suspect and reference names, or each in another way."""
    assert case.suspect is not None
    assert case.reference is not None
    flags = unnamed_flags(case.suspect, case.reference)
    if "config" in case.unsure and same_numbers(case.suspect, case.reference) != "yes":
        yield "three numbers (num_steps, eagle_topk, num_draft_tokens)"
    if "config" in case.unsure and flags:
        yield f"flags {', '.join(flags)} (null: not set)"
    if "layout" in case.unsure:
        yield "layout (layout_ids or layout_taps)"


def _sure_of_itself(group: Group, case: Case) -> bool:
    """Whether the suspect alone clears what the reference may have otherwise: by its taps, or its first position.

    The first position clears the three numbers; a flag may destroy it.
    """
    suspect, reference = case.suspect, case.reference
    if suspect is None or reference is None or group not in case.unsure:
        return False
    if group == "layout":
        return suspect.taps is not None and suspect.row.trained_taps == suspect.taps
    return health(suspect.p1) == "no" and not unnamed_flags(suspect, reference)


def _differences(case: Case) -> Iterator[str]:
    """In what suspect and reference differ, and in what perhaps."""
    if case.differing:
        at_once = " at once" if len(case.differing) > 1 else ""
        yield f"suspect and reference differ in {', '.join(case.differing)}{at_once}"
    if case.unsure:
        yield f"whether they differ in {' and '.join(case.unsure)} is not known: the rows do not name it alike"
