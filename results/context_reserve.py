"""What a server keeps free of its context, which a switch does not change."""

from __future__ import annotations

import re
from collections.abc import Sequence

from results.failures import Failure
from results.observations import CellObservation, LaunchObservation
from search_spaces.config import Triple

TOO_LONG = re.compile(r"context[ _-]length", re.I)
"""How SGLang refuses a request for its length (`_validate_one_request`, srt/managers/tokenizer_manager.py)."""


def kept_tokens(triple: Triple) -> int:
    """Tokens that a server launched with this triple keeps free beside each request's prompt and answer
    (`compute_num_reserved_tokens`, srt/managers/utils.py)."""
    return max(triple.eagle_topk * triple.num_steps, triple.num_draft_tokens)


def refused_for_room(
    cells: Sequence[CellObservation], launch: LaunchObservation, triple: Triple | None, failure: Failure | None = None
) -> str | None:
    """Why requests were refused that a launch of its own might have served, in one line; None if none were.

    The front process keeps what the server was launched with: no order of a switch reaches it.
    """
    room = launch.pools
    if room is None or triple is None or kept_tokens(room) <= kept_tokens(triple):
        return None
    errors = [row.error for cell in cells for row in cell.rows if row.error is not None]
    errors += [] if failure is None else [failure.message]
    if not any(TOO_LONG.search(error) for error in errors):
        return None
    return (
        f"a switched server refused requests for their length: launched with room for {room}, it keeps "
        f"{kept_tokens(room)} tokens of its context free, and a launch of a smaller triple keeps fewer; "
        "leave longer requests out, or set engine.switching: off"
    )
