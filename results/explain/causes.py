"""Direct evidence on each of the three causes, from the ceiling, p1, taps and series over one group.

A config limit caps the ceiling and leaves the first position healthy; layout and parallelism faults destroy the first
position; of these two only a parallelism fault changes with TP at a fixed layout.
"""

from __future__ import annotations

from results.attribution import Group
from results.explain.cases import Case
from results.explain.comparison import compare, largest_spread
from results.explain.evidence import Evidence, health, uncertain
from results.explain.layouts import show
from results.explain.reading import Reading
from results.explain.sameness import is_known
from results.explain.unrunnable import how_to_feed, numbers_refused, states_unfed
from search_spaces.config import Taps
from search_spaces.layouts import one_apart

AT_CEILING = 0.5
"""Share of verify steps that accept every draft from which the ceiling, not the draft, limits the accept length."""


def best_parallel(case: Case) -> Reading | None:
    """The suspect's config and layout at the parallelism where they do best: what is left is not parallelism's."""
    return max(case.series("parallelism"), key=lambda reading: reading.accept_length or 0.0, default=case.suspect)


def config(case: Case) -> Evidence:
    """The ceiling, and what SGLang made of the triple."""
    reading = best_parallel(case)
    refused = None if reading is None else numbers_refused(reading)
    return refused or _by_ceiling(reading)


def _by_ceiling(reading: Reading | None) -> Evidence:
    if reading is None or reading.triple is None:
        return Evidence(
            answer="undecided",
            text=f"the triple is not known, so neither is the ceiling{_no_length(reading)}",
            next="give num_steps, eagle_topk and num_draft_tokens (asked and as /server_info shows them)",
        )
    text, lost = _ceiling(reading)
    last, state = reading.last, health(reading.p1)
    if last is None or reading.accept_length is None:
        return Evidence(answer="undecided", text=text, next="measure the accept length on real prompts")
    if state == "no":
        return Evidence(answer="no", text=f"{text}: the ceiling is far away, the first position already fails")
    text += f"; first-position acceptance {reading.p1}"
    if last.low >= AT_CEILING:
        steps = max(3, reading.triple.num_steps + 2)
        return Evidence(
            answer="yes",
            text=f"config-limited: {text}; {last.low:.0%} of verify steps or more accept every draft: "
            + ("the head is healthy, the ceiling limits" if state == "yes" else "the ceiling limits"),
            next=f"measure num_steps {steps} or more, e.g. ({steps},1,{steps + 1})"
            + (f" or a tree such as ({steps},4,{max(8, steps + 1)})" if lost else ""),
        )
    if last.high < AT_CEILING or (state == "yes" and last.estimate < AT_CEILING):
        return Evidence(answer="no", text=f"{text}: the ceiling is not what limits")
    return Evidence(
        answer="undecided",
        text=text,
        next="take the histogram of accepted drafts (spec_correct_drafts_histogram in meta_info): it tells how many"
        " verify steps reach the ceiling",
    )


def only_flag(case: Case) -> Evidence | None:
    """An engine flag as the only thing in which suspect and reference are known to differ."""
    suspect, reference = case.suspect, case.reference
    if suspect is None or reference is None or case.differing or case.unsure:
        return None
    pairs = zip(suspect.server_state, reference.server_state, strict=True)
    other = [(name, a, b) for (name, a), (_, b) in pairs if a is not None and b is not None and a != b]
    against = compare(suspect, reference)
    if len(other) != 1 or against is None or against.different != "yes":
        return None
    name, mine, theirs = other[0]
    return Evidence(
        answer="yes",
        text=f"{name} {mine} against {theirs} is all that is known to differ, and accept lengths differ by {against}",
        next=f"repeat both with nothing but {name} changed, on the same prompts at temperature 0",
    )


def _ceiling(reading: Reading) -> tuple[str, bool]:
    """The triple, what was asked, its ceiling and the accept length; and whether draft tokens were lost."""
    assert reading.triple is not None
    length = "" if reading.accept_length is None else f", accept length {reading.accept_length:.2f}"
    text = f"ceiling {reading.triple.ceiling} at {reading.triple}{length}{_no_length(reading)}"
    lost = (reading.row.num_draft_tokens or 0) > reading.triple.num_draft_tokens
    if lost:
        asked = ",".join("?" if value is None else str(value) for value in reading.asked)
        text = f"({asked}) runs as {reading.triple} (at topk 1 num_draft_tokens becomes num_steps + 1): {text}"
    return text, lost


def _no_length(reading: Reading | None) -> str:
    """Why a row has no accept length, where its source says so."""
    if reading is None or reading.accept_length is not None:
        return ""
    return "".join(f"; {note}" for note in reading.row.notes if "interval" in note) or "; no accept length"


def layout(case: Case) -> Evidence:
    """What the draft was trained on against what it is fed, then the first position."""
    reading = best_parallel(case)
    if reading is None:
        return Evidence(answer="undecided", text="no accept length", next="measure the accept length")
    return states_unfed(reading) or _by_taps(reading, trained_taps(case, reading))


def trained_taps(case: Case, reading: Reading) -> Taps | None:
    """The taps that the suspect's draft was trained on; where it does not say, as a reading of the same draft does."""
    own = None if case.suspect is None else case.suspect.row.trained_taps
    return reading.row.trained_taps if own is None else own


def _by_taps(reading: Reading, trained: Taps | None) -> Evidence:
    taps = reading.taps
    if trained is None or taps is None:
        return _layout_by_p1(reading)
    if trained == taps:
        return Evidence(answer="no", text=f"the draft is fed the taps it was trained on, {show(taps)}")
    text = f"layout mismatch: the draft was trained on {show(trained)} and is fed {show(taps)}"
    mend = how_to_feed(reading, trained)
    if one_apart(trained, taps) and health(reading.p1) != "no":
        text += ": one layer off, which costs far less than a wrong layout"
        return Evidence(answer="undecided", text=text, next=f"{mend} and measure what the shift costs")
    if sorted(trained) == sorted(taps):
        return Evidence(answer="yes", text=f"{text}: the same taps in another order", next=mend)
    return Evidence(answer="yes", text=f"{text}; equal shapes and a healthy server do not clear it", next=mend)


def _layout_by_p1(reading: Reading) -> Evidence:
    """Without the trained taps only the first position speaks, and it cannot tell layout from weights."""
    state = health(reading.p1)
    text = f"first-position acceptance {reading.p1 or 'unknown'}"
    if reading.taps is not None:
        text += f", fed {show(reading.taps)}"
    if state == "yes":
        text += ": a wrong layout destroys it (a shift by one layer would not, and is not excluded)"
        return Evidence(answer="no", text=text)
    if state == "no":
        return Evidence(
            answer="undecided",
            text=f"{text}: layout or weights mismatch; a healthy server and correct text do not clear it",
            next="probe what the draft's fc receives, or give the taps the draft was trained on (trained_taps)",
        )
    return Evidence(
        answer="undecided",
        text=f"{text}: {uncertain(reading.p1)}",
        next="give the acceptance by position or the histogram, and the taps the draft was trained on",
    )


def parallelism(case: Case) -> Evidence:
    """A series over TP at fixed layout and config; without one, tp 1 and the first position."""
    suspect = case.suspect
    if suspect is None:
        return Evidence(answer="undecided", text="no accept length", next="measure the accept length")
    series = sorted(case.series("parallelism"), key=lambda reading: reading.parallelism)
    if len({reading.parallelism for reading in series}) > 1:
        return _over_tp(series)
    state = health(suspect.p1)
    if suspect.tp_size == 1:
        said = "measured at tp 1" if suspect.row.tp_size else "no tp size given, and SGLang's default is 1"
        return Evidence(answer="no", text=f"{said}: nothing is split")
    if state == "yes":
        return Evidence(
            answer="no", text=f"first-position acceptance {suspect.p1} at tp {suspect.tp_size}: a TP fault destroys it"
        )
    return Evidence(
        answer="undecided",
        text=f"measured at tp {suspect.tp_size} only",
        next=f"measure the same layout, triple and prompts at tp 1 (or another tp than {suspect.tp_size})",
    )


def _over_tp(series: list[Reading]) -> Evidence:
    text = ", ".join(f"{reading.accept_length:.2f} at {_split(reading)}" for reading in series)
    spread = largest_spread(series)
    assert spread is not None
    if spread.different == "no" and series[0].tp_size > 1 and health(series[0].p1) == "no":
        return Evidence(
            answer="undecided",
            text=f"{text}: equal, and destroyed at every size; a fault of any split would look the same",
            next="measure the same layout, triple and prompts at tp 1",
        )
    if spread.different == "no":
        return Evidence(answer="no", text=f"no TP effect: {text}, spread {abs(spread.relative):.1%} within tolerance")
    if spread.different == "undecided":
        return Evidence(
            answer="undecided",
            text=f"{text}: a spread of {abs(spread.relative):.1%} is neither noise nor a fault for certain",
            next="measure both on the same prompts at temperature 0, paired: TP must not change a token",
        )
    first = compare(series[0], series[-1])
    falls = first is not None and first.relative < 0
    return Evidence(
        answer="yes",
        text=f"accept length depends on parallelism{_held(series[0])}: {text}" + (", falling" if falls else ""),
        next="probe per rank what the draft's fc receives: sliced, partial sums or unequal ranks",
    )


def _held(reading: Reading) -> str:
    """What is fixed over a series, and what is only taken to be since none of its rows names it."""
    groups: tuple[Group, ...] = ("layout", "config")
    named, silent = ([group for group in groups if is_known(reading, group) is known] for known in (True, False))
    fixed = f" at fixed {' and '.join(named)}" if named else ""
    return fixed + (f" (no row names its {' or '.join(silent)})" if silent else "")


def _split(reading: Reading) -> str:
    dp = f" dp {reading.row.dp_size}" if (reading.row.dp_size or 1) > 1 else ""
    attention = " with DP attention" if reading.row.dp_attention else ""
    return f"tp {reading.tp_size}{dp}{attention}"
