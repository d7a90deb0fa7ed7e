"""What SGLang could not have run as a row describes it: numbers that it refuses, taps that it cannot feed."""

from __future__ import annotations

from results.explain.evidence import Evidence, health
from results.explain.layouts import show
from results.explain.reading import Reading
from results.explain.target_classes import dialect_for
from search_spaces.config import Taps
from search_spaces.dialects import Inexpressible

_LEGAL_NUMBERS = "ask for numbers that SGLang can run: num_steps + 1 <= num_draft_tokens <= 1 + k + (s-1)*k*k"


def numbers_refused(reading: Reading) -> Evidence | None:
    """Numbers that SGLang refuses or dies of: the cause without an accept length, a contradiction with one."""
    death = reading.row.death
    if death is not None and death.kind == "tree":
        why = f"; {reading.triple_refusal}" if reading.triple_refusal else ""
        return Evidence(answer="yes", text=f"the server died: {death.line}{why}", next=_LEGAL_NUMBERS)
    if reading.triple_refusal is None or health(reading.p1) == "no":
        return None
    asked = ",".join(str(value) for value in reading.asked)
    text = f"({asked}) cannot run: {reading.triple_refusal}"
    if reading.accept_length is None:
        return Evidence(answer="yes", text=text, next="ask for numbers and a backend that SGLang can run")
    return Evidence(
        answer="undecided",
        text=f"{text}; so it is not what gave the accept length of {reading.accept_length:.2f}",
        next="read the three numbers that really ran back from /server_info",
    )


def states_unfed(reading: Reading) -> Evidence | None:
    """A capture that cannot feed the draft: seen in the log, or following from the ids and the class."""
    death = reading.row.death
    if death is not None and death.kind == "states":
        text = f"the server died of states that do not fit the draft: {death.line}"
        return Evidence(answer="yes", text=text, next="compare the ids with the taps that the draft's fc takes (check)")
    if reading.layout_problem is None:
        return None
    text = f"{reading.layout_problem}; SGLang dies, or feeds the draft fewer states than it was trained on"
    if health(reading.p1) == "yes":
        return Evidence(
            answer="undecided",
            text=f"{text}; yet the first position is healthy, so class, layers or ids are not those that ran",
            next="check target_class, num_layers and layout_ids",
        )
    return Evidence(answer="yes", text=text, next="give distinct ids that this class can capture")


def how_to_feed(reading: Reading, trained: Taps) -> str:
    """How to feed the trained taps on this class."""
    dialect = dialect_for(reading.row.target_class, reading.row.sglang_version)
    if dialect is None or reading.row.num_layers is None:
        return f"serve it with ids that capture {show(trained)}"
    ids = dialect.ids_for(trained, reading.row.num_layers)
    if isinstance(ids, Inexpressible):
        return f"{show(trained)} cannot be served on {reading.row.target_class}: {ids.reason}; another draft is needed"
    return f"serve it with eagle_config.eagle_aux_hidden_state_layer_ids = {list(ids)}, which capture {show(trained)}"
