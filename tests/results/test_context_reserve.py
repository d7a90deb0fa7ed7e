"""A switched server keeps as much of its context free as the room that it was launched with."""

from __future__ import annotations

from dataclasses import replace

import pytest
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
