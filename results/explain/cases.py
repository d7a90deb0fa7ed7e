"""Which readings are compared: the suspect, the reference, and the corners between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from results.attribution import GROUPS, Corner, Group, corners
from results.explain.reading import Reading
from results.explain.sameness import differing, is_known, same, unsure


@dataclass(frozen=True, kw_only=True)
class Case:
    """The suspect, what it is compared with, and every other usable reading.

    `suspect` is None when no reading has an accept length or names what it runs, `reference` when none compares.
    `differing` are the groups in which these two are known to differ, `unsure` those in which they may: no part of the
    gap is any group's while there is one. `corners` holds a reading for each corner that was measured, the two ends
    among them.
    """

    readings: tuple[Reading, ...]
    suspect: Reading | None
    reference: Reading | None
    differing: tuple[Group, ...]
    unsure: tuple[Group, ...]
    corners: dict[Corner, Reading]

    @property
    def missing(self) -> tuple[Corner, ...]:
        return tuple(corner for corner in corners(self.differing) if corner not in self.corners)

    def series(self, group: Group) -> list[Reading]:
        """The suspect and the readings under its conditions that differ from it in this group, surely in no other."""
        if self.suspect is None:
            return []
        others = [
            reading
            for reading in self.readings
            if reading.accept_length
            and reading.conditions == self.suspect.conditions
            and differing(self.suspect, reading) == (group,)
            and not unsure(self.suspect, reading)
        ]
        return [self.suspect, *others]


def build_case(readings: Sequence[Reading]) -> Case:
    """Choose suspect and reference among usable readings. Without any accept length the first reading is the suspect.

    Roles decide where they are given. Otherwise the suspect is the reading with the lowest accept length and the
    reference the highest one measured under the same conditions. Controls are neither.
    """
    measured = [r for r in readings if r.accept_length and r.speculative]
    plain = [r for r in measured if r.row.role is None]
    suspects = [r for r in measured if r.row.role == "suspect"] or plain
    suspects = suspects or [r for r in measured if r.row.role == "reference"]
    told = [r for r in readings if r.row.role != "control" and (is_known(r, "config") or is_known(r, "layout"))]
    if not suspects and not told:
        suspects = measured
    suspect = min(suspects, key=_length, default=None)
    if suspect is None:
        return Case(
            readings=tuple(readings),
            suspect=told[0] if told else None,
            reference=None,
            differing=(),
            unsure=(),
            corners={},
        )
    named = [r for r in measured if r.row.role == "reference" and r is not suspect]
    others = [r for r in measured if r is not suspect and r.row.role in (None, "suspect")]
    comparable = [r for r in named if _comparable(suspect, r)] or [
        r for r in others if r.conditions == suspect.conditions
    ]
    reference = max(comparable, key=_length, default=None)
    different = () if reference is None else differing(suspect, reference)
    return Case(
        readings=tuple(readings),
        suspect=suspect,
        reference=reference,
        differing=different,
        unsure=() if reference is None else unsure(suspect, reference),
        corners=_corners(measured, suspect, reference, different),
    )


def _length(reading: Reading) -> float:
    return reading.accept_length or 0.0


def _comparable(suspect: Reading, reference: Reading) -> bool:
    """A named reference may leave conditions out, but not contradict the suspect's."""
    pairs = zip((*suspect.model, *suspect.conditions[1:]), (*reference.model, *reference.conditions[1:]), strict=True)
    return all(a is None or b is None or a == b for a, b in pairs)


def _corners(
    measured: Sequence[Reading], suspect: Reading, reference: Reading | None, different: tuple[Group, ...]
) -> dict[Corner, Reading]:
    found: dict[Corner, Reading] = {frozenset(): suspect}
    if reference is None:
        return found
    for corner in corners(different):
        ends = {group: reference if group in corner else suspect for group in GROUPS}
        match = [
            reading
            for reading in measured
            if reading.conditions in (suspect.conditions, reference.conditions)
            and all(same(reading, ends[group], group) == "yes" for group in GROUPS)
        ]
        if match:
            found.setdefault(corner, match[0])
    found[frozenset(different)] = reference if different else suspect
    return found
