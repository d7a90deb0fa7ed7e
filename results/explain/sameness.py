"""Whether two rows ran the same, group by group, as far as what they name tells."""

from __future__ import annotations

from results.attribution import GROUPS, Group
from results.explain.reading import Reading
from results.stats.effects import Answer

Numbers = tuple[int | None, int | None, int | None]


def is_known(reading: Reading, group: Group) -> bool:
    """Whether a row says anything about a group. An absent tp size is SGLang's default of 1, hence known."""
    if group == "config":
        return reading.triple is not None or any(value is not None for value in reading.asked)
    return group == "parallelism" or reading.layout_known


def same(first: Reading, second: Reading, group: Group) -> Answer:
    """Whether two rows are equal in a group: undecided when only one of them names it, or each in another way.

    What neither names is taken to be equal: rows that leave out the same thing usually share it. For config that is so
    for each of the three numbers and every flag; where one that both name differs, the group does.
    """
    if group == "config":
        found = same_numbers(first, second), "undecided" if unnamed_flags(first, second) else "yes"
        return "no" if _flags_differ(first, second) or "no" in found else "undecided" if "undecided" in found else "yes"
    if group == "parallelism":
        return _equal(first.parallelism, second.parallelism)
    if not first.layout_known and not second.layout_known:
        return "yes"
    if not (first.layout_known and second.layout_known) or first.layout[0] != second.layout[0]:
        return "undecided"
    return _equal(first.layout, second.layout)


def differing(first: Reading, second: Reading) -> tuple[Group, ...]:
    """The groups in which two rows are known to differ."""
    return tuple(group for group in GROUPS if same(first, second, group) == "no")


def unsure(first: Reading, second: Reading) -> tuple[Group, ...]:
    """The groups in which two rows may differ or not."""
    return tuple(group for group in GROUPS if same(first, second, group) == "undecided")


def same_numbers(first: Reading, second: Reading) -> Answer:
    """Whether two rows run the same triple: undecided when they differ in no number that both say, and in what is
    left out of one."""
    if (first.triple or first.asked) == (second.triple or second.asked):
        return "yes"
    pairs = zip(_numbers(first), _numbers(second), strict=True)
    return "no" if any(None not in pair and pair[0] != pair[1] for pair in pairs) else "undecided"


def unnamed_flags(first: Reading, second: Reading) -> tuple[str, ...]:
    """Flags that only one of two rows names. A row names one that was not set by the value null."""
    return tuple(sorted(first.flags.keys() ^ second.flags.keys()))


def _flags_differ(first: Reading, second: Reading) -> bool:
    return any(first.flags[name] != second.flags[name] for name in first.flags.keys() & second.flags.keys())


def _numbers(reading: Reading) -> Numbers:
    """The three that run, None for one that does not follow: with topk 1, or none named, the tokens asked for may not
    be those that run."""
    if reading.triple is not None:
        return reading.triple.num_steps, reading.triple.eagle_topk, reading.triple.num_draft_tokens
    steps, topk, tokens = reading.asked
    return steps, topk, None if topk in (None, 1) else tokens


def _equal(one: object, other: object) -> Answer:
    return "yes" if one == other else "no"
