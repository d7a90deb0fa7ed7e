"""What a server keeps free of its context, which a switch does not change."""

from __future__ import annotations

import re
from collections.abc import Sequence

from results.failures import Failure
from results.observations import CellObservation, LaunchObservation
from search_spaces.config import Triple

TOO_LONG = re.compile(r"context[ _-]length", re.I)
"""How SGLang refuses a request for its length (`_validate_one_request`, srt/managers/tokenizer_manager.py)."""

TOTAL = re.compile(r"context length of (?P<context>\d+) tokens\. You requested a total of (?P<asked>\d+) tokens", re.I)
INPUT = re.compile(
    r"input \((?P<asked>\d+) tokens\) is longer than .{0,40}context length \((?P<context>\d+) tokens", re.I
)
"""The same with numbers: what was asked counts what the server keeps free. A total may fill the context, an input alone
may not."""


def kept_tokens(triple: Triple) -> int:
    """Tokens that a server launched with this triple keeps free beside each request's prompt and answer
    (`compute_num_reserved_tokens`, srt/managers/utils.py)."""
    return max(triple.eagle_topk * triple.num_steps, triple.num_draft_tokens)


def refused_for_room(
    cells: Sequence[CellObservation], launch: LaunchObservation, triple: Triple | None, failure: Failure | None = None
) -> str | None:
    """Why requests were refused that a launch of its own might have served, in one line; None if none were.

    The front process keeps what the server was launched with: no order of a switch reaches it. A request that is too
    long for every server is not put down to the room; one whose refusal names no numbers may be.
    """
    room = launch.pools
    if room is None or triple is None:
        return None
    fewer = kept_tokens(room) - kept_tokens(triple)
    if fewer <= 0:
        return None
    errors = [row.error for cell in cells for row in cell.rows if row.error is not None]
    errors += [] if failure is None else [failure.message]
    if not any(_might_fit(error, fewer) for error in errors):
        return None
    return (
        f"a switched server refused requests for their length: launched with room for {room}, it keeps "
        f"{kept_tokens(room)} tokens of its context free, and a launch of a smaller triple keeps fewer; "
        "leave longer requests out, or set engine.switching: off"
    )


def _might_fit(error: str, fewer: int) -> bool:
    """Whether a request was refused for its length that a server might serve that keeps so many tokens fewer free."""
    if TOO_LONG.search(error) is None:
        return False
    if total := TOTAL.search(error):
        return int(total["asked"]) - fewer <= int(total["context"])
    if alone := INPUT.search(error):
        return int(alone["asked"]) - fewer < int(alone["context"])
    return True
