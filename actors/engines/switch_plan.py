"""What is to be done next to bring a server into a configuration: keep it, switch it, or launch one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from actors.engines.live_control import why_not_switchable
from actors.engines.rooms import Rooms
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that answers: launched as `room`, it runs `config` by now, of which `launch` is what was observed.

    `ordered` while it traces or records.
    """

    room: EngineConfig
    config: EngineConfig
    launch: LaunchObservation
    ordered: bool = False


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Launch a server as `room`; `less` is why it has not all the room that there is to be."""

    room: EngineConfig
    less: str | None = None


def next_step(
    running: Running | None, wanted: EngineConfig, *, ordered: bool, trusted: bool, rooms: Rooms
) -> Literal["keep", "switch"] | Launch:
    """The next step towards `wanted`. Decides only; what it takes from `rooms` SGLang may have to be asked for.

    What is `ordered` to trace or record is switched in any case, and need not be what a launch of its own would be:
    nothing is measured on it. Where switching is not `trusted` the configuration itself is launched.
    """
    if running is not None:
        if running.config == wanted and not ordered and not running.ordered:
            return "keep"
        reachable = trusted and why_not_switchable(running.room, wanted) is None
        if reachable and (ordered or rooms.difference(running.room, wanted) is None):
            return "switch"
    if not trusted:
        return Launch(room=wanted)
    room, less = rooms.to_launch(wanted, exact=not ordered)
    return Launch(room=room, less=less)
