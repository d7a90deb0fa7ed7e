"""What looks like a wrong layout and may be something smaller or something else: a shift by one, or the weights."""

from __future__ import annotations

from results.explain.cases import Case
from results.explain.causes import best_parallel, trained_taps
from results.explain.comparison import DIFFERENT, compare
from results.explain.evidence import health, uncertain
from results.explain.layouts import show
from results.explain.reading import Reading
from results.explain.target_classes import dialect_for
from results.verdicts import OtherVerdict
from search_spaces.layouts import one_apart


def id_shift(case: Case) -> OtherVerdict | None:
    """Ids read in another convention than they were written in: every tap one block off."""
    suspect, reference = case.suspect, case.reference
    if suspect is None:
        return None
    trained = suspect.row.trained_taps
    if trained is not None and suspect.taps is not None:
        off = one_apart(trained, suspect.taps)
        text = f"trained on {show(trained)}, fed {show(suspect.taps)}"
        if off:
            text += ": a shift by one layer, as between explicit ids and defaults or between two conventions of ids"
        return OtherVerdict(kind="id_shift", verdict="yes" if off else "no", evidence=text)
    if reference is not None and _one_apart(suspect, reference):
        against = compare(reference, suspect)
        if against is not None and against.relative < 0:
            small = abs(against.relative) <= DIFFERENT
            drop = (reference.accept_length or 0.0) - (suspect.accept_length or 0.0)
            text = f"{_layout(suspect)} against {_layout(reference)}, accept length {drop:.2f} lower: "
            text += "a shift by one layer is plausible" if small else "more than a shift by one layer usually costs"
            return OtherVerdict(kind="id_shift", verdict="yes" if small else "undecided", evidence=text)
    return _copied_default(suspect)


def _one_apart(first: Reading, second: Reading) -> bool:
    if first.taps is not None and second.taps is not None:
        return one_apart(first.taps, second.taps)
    a, b = first.row.layout_ids, second.row.layout_ids
    return a is not None and b is not None and one_apart(a, b)


def _layout(reading: Reading) -> str:
    ids = f"ids {list(reading.row.layout_ids)}" if reading.row.layout_ids is not None else "no ids"
    return f"{ids} (taps {show(reading.taps)})" if reading.taps is not None else ids


def _copied_default(suspect: Reading) -> OtherVerdict | None:
    """Ids that copy SGLang's default list are shifted; the default itself is not."""
    row = suspect.row
    dialect = dialect_for(row.target_class, row.sglang_version)
    if dialect is None or row.num_layers is None or row.layout_ids is None or suspect.taps is None:
        return None
    default = dialect.capture(None, row.num_layers)
    if row.layout_ids != default.marks or suspect.taps == default.taps:
        return None
    return OtherVerdict(
        kind="id_shift",
        verdict="undecided",
        evidence=f"the ids {list(row.layout_ids)} copy SGLang's default list, but written out they capture"
        f" {show(suspect.taps)}: a shift by one layer is plausible if the draft was trained on the default",
    )


LATER_SHARE = 0.5
"""Second drafts accepted less than half as often (after a first one) as first drafts; heads keep above 0.7 of it."""


def _later_steps(reading: Reading, text: str) -> OtherVerdict | None:
    """A healthy first position and a second one that collapses: what feeds the first draft does not feed the others."""
    positions = reading.positions or ()
    if len(positions) < 2 or positions[1] >= LATER_SHARE * positions[0] ** 2:
        return None
    return OtherVerdict(
        kind="head_or_weights",
        verdict="yes",
        evidence=f"{text}, yet only {positions[1] / positions[0]:.2f} of the second drafts after it: taps and first"
        " step are right, the draft's own steps are not: its norm_output, its positions, or a training of one step",
    )


def head_or_weights(case: Case) -> OtherVerdict | None:
    """A destroyed first position that neither the ceiling nor TP explains."""
    reading = best_parallel(case)
    if reading is None or reading.p1 is None:
        return None
    state, trained = health(reading.p1), trained_taps(case, reading)
    text = f"first-position acceptance {reading.p1} at {reading.triple or 'an unknown triple'}"
    if state == "yes":
        return _later_steps(reading, text) or OtherVerdict(
            kind="head_or_weights", verdict="no", evidence=f"{text}: the head is healthy"
        )
    if trained is not None and trained == reading.taps and state == "no":
        return OtherVerdict(
            kind="head_or_weights",
            verdict="yes",
            evidence=f"{text} although the draft is fed the taps it was trained on: the head itself, its"
            " vocabulary map, norms or rope (run check on the pair)",
        )
    if trained is not None and reading.taps is not None and trained != reading.taps:
        return OtherVerdict(
            kind="head_or_weights", verdict="undecided", evidence=f"{text}: judge the head after mending the layout"
        )
    what = "layout or weights" if state == "no" else uncertain(reading.p1)
    return OtherVerdict(
        kind="head_or_weights",
        verdict="undecided",
        evidence=f"{text}: {what}; a probe of what fc receives, or offline accuracy of the draft, tells the two apart",
    )
