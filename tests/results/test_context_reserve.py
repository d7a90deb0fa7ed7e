"""A switched server keeps as much of its context free as the room that it was launched with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import cell, launch, row

from results.context_reserve import kept_tokens, refused_for_room
from results.failures import Failure
from search_spaces.config import Triple

SMALL, WIDE, ROOM = (
    Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    for steps, topk, tokens in ((1, 1, 2), (7, 8, 16), (7, 8, 32))
)
REFUSED = "HTTP 400: Requested token count exceeds the model's maximum context length of 512 tokens."


@pytest.mark.parametrize(
    ("triple", "kept"), [(SMALL, 2), (ROOM, 56), (Triple(num_steps=2, eagle_topk=2, num_draft_tokens=7), 7)]
)
def test_what_is_kept_free(triple: Triple, kept: int) -> None:
    assert kept_tokens(triple) == kept


def test_a_refusal_is_put_down_to_the_room_only_where_it_may_be() -> None:
    switched = launch(switch_s=0.3, pools=ROOM)
    good, refused = cell([row()]), cell([row(), replace(row(), error=REFUSED)])
    found = refused_for_room([good, refused], switched, SMALL)
    assert found is not None
    assert "launched with room for (7,8,32), it keeps 56 tokens" in found
    other = cell([replace(row(), error="HTTP 500: no")])
    for cells, seen, triple in (
        ([good, other], switched, SMALL),
        ([refused], launch(), SMALL),
        ([refused], switched, None),
        ([refused], switched, WIDE),
    ):
        assert refused_for_room(cells, seen, triple) is None
    # when all were refused there is no cell
    failure = Failure(phase="measure", kind="client", message=f"all 8 requests failed; first: {REFUSED}")
    assert refused_for_room([], switched, SMALL, failure) == found


def refusal(prompt: int, answer: int, kept: int, *, context: int = 512) -> str | None:
    """What SGLang 0.5.23 answers to a request when it keeps so many tokens free, as the client notes it; None if it
    serves it."""
    asked = prompt + kept
    if asked >= context:
        said = f"The input ({asked} tokens) is longer than the model's context length ({context} tokens)."
    elif asked + answer > context:
        said = (
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {asked + answer} tokens: {asked} tokens from the input messages and {answer} tokens for the "
            "completion. Please reduce the number of tokens in the input messages or the completion to fit within the "
            "limit."
        )
    else:
        return None
    return f'HTTP 400: {{"error":{{"message":"{said}"}}}}'[:300]


@given(prompt=st.integers(1, 700), answer=st.integers(1, 300))
def test_a_request_that_is_too_long_for_every_server_is_not_put_down_to_the_room(prompt: int, answer: int) -> None:
    error = refusal(prompt, answer, kept_tokens(ROOM))
    if error is None:
        return
    found = refused_for_room([cell([replace(row(), error=error)])], launch(switch_s=0.3, pools=ROOM), SMALL)
    alone = refusal(prompt, answer, kept_tokens(SMALL))
    if alone is None:
        assert found is not None
    elif "The input" in alone or "You requested" in error:
        assert found is None
    # else the refusal names the input alone: how long an answer was asked with it is not known


@pytest.mark.parametrize(
    ("prompt", "answer", "told"),
    # that 458 tokens are too many is told without the answer, which might be short enough
    [(400, 110, True), (400, 111, False), (509, 1, True), (510, 1, False), (458, 52, True), (458, 53, True)],
)
def test_the_longest_request_that_a_smaller_triple_might_serve(prompt: int, answer: int, told: bool) -> None:
    error = refusal(prompt, answer, kept_tokens(ROOM))
    assert error is not None
    found = refused_for_room([cell([replace(row(), error=error)])], launch(switch_s=0.3, pools=ROOM), SMALL)
    assert (found is not None) == told
