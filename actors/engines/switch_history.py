"""What a group has learnt about switching its servers. It outlives the engines that learnt it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from actors.engines.live_control import NotSwitched
from results.failures import Failure, Kind
from search_spaces.config import EngineConfig, Flags

MAX_FAILED_SWITCHES = 2
"""After so many in a row nothing is switched any more."""

OF_ITS_SIZE: frozenset[Kind] = frozenset({"bad_config", "oom", "crash", "mismatch", "timeout"})
"""Failures of a server with room that one without may not meet."""


@dataclass(kw_only=True)
class SwitchHistory:
    """Mutable, for one thread. An actor keeps one for its group; other actors, and a successor, learn for themselves:
    that costs them the starts of one or two rooms each, which their records count."""

    heard: bool = False  # some rank has answered an order once: the plugin loads
    _in_a_row: int = 0
    _last_reason: str = ""
    _for_good: dict[Flags, str] = field(default_factory=dict)
    _late: set[EngineConfig] = field(default_factory=set)
    _too_large: dict[EngineConfig, str] = field(default_factory=dict)

    def distrust(self, config: EngineConfig) -> str | None:
        """Why a server of this configuration is not to be switched; None while it may be tried."""
        if self._in_a_row >= MAX_FAILED_SWITCHES:
            return self._last_reason
        return self._for_good.get(config.flags)

    def switched(self) -> None:
        self._in_a_row = 0

    def not_switched(self, failed: NotSwitched, config: EngineConfig, *, ordered: bool) -> None:
        """A full disk says nothing about switching, and a trace or a probe that fails says nothing about the rest."""
        if failed.for_good:
            self._for_good[config.flags] = failed.reason
        elif not failed.of_machine and not ordered:
            self._in_a_row, self._last_reason = self._in_a_row + 1, failed.reason

    def room_failed(self, room: EngineConfig, failure: Failure) -> bool:
        """Whether its size may be to blame, so that less is to be launched. Remembered for its layout.

        A first server that is late may have read its weights from a cold disk: it is to be tried again as it was.
        """
        if failure.kind not in OF_ITS_SIZE:
            return False
        if failure.kind == "timeout" and room not in self._late:
            self._late.add(room)
            return False
        self._too_large[room] = f"a server with room for {room.triple} failed: {failure.message}"
        return True

    def started(self, config: EngineConfig) -> None:
        """Where less room started and more did not, the size was to blame, and not the layout."""
        for room, reason in list(self._too_large.items()):
            if room != config and replace(room, triple=config.triple) == config:
                self._too_large[_any_layout(room)] = reason

    def room_problem(self, room: EngineConfig) -> str | None:
        """Why there cannot be so much room, in one line; None if nobody knows a reason."""
        return self._too_large.get(room) or self._too_large.get(_any_layout(room))


def _any_layout(config: EngineConfig) -> EngineConfig:
    return replace(config, layout=())
