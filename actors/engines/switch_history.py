"""What a group has learnt about switching its servers. It outlives the engines that learnt it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from actors.engines.live_control import NotSwitched, why_not_switchable
from results.failures import Failure, Kind
from search_spaces.config import EngineConfig, Flags, Triple

Size = tuple[int, Flags, Triple | None]
"""TP size, flags and triple: what a room takes, in whatever layout."""

MAX_FAILED_SWITCHES = 2
"""After so many in a row nothing is switched any more."""

OF_ITS_SIZE: frozenset[Kind] = frozenset({"bad_config", "oom", "crash", "mismatch", "timeout"})
"""Failures of a server with room that one without may not meet."""


@dataclass(kw_only=True)
class SwitchHistory:
    """Mutable, for one thread. An actor keeps one for its group; other actors, and a successor, learn for themselves:
    that costs them a few starts of servers with room, which their records count."""

    heard: bool = False  # some rank has answered an order once: the plugin loads
    _failed_switches: int = 0  # in a row
    _last_reason: str = ""
    _for_good: dict[Flags, str] = field(default_factory=dict)
    _started: set[Size] = field(default_factory=set)
    _failed_starts: Counter[EngineConfig] = field(default_factory=Counter)  # of rooms, in a row
    _too_large: dict[EngineConfig, str] = field(default_factory=dict)
    _too_large_in_any_layout: dict[Size, str] = field(default_factory=dict)

    def distrust(self, config: EngineConfig, *, ordered: bool = False) -> str | None:
        """Why a server of this configuration is not to be switched; None while it may be tried.

        What is `ordered` to trace or record is tried whatever became of other switches, which fail mostly for the
        memory of their CUDA graphs: it has none.
        """
        if not ordered and self._failed_switches >= MAX_FAILED_SWITCHES:
            return self._last_reason
        return self._for_good.get(config.flags)

    def switched(self, *, ordered: bool) -> None:
        if not ordered:
            self._failed_switches = 0

    def not_switched(self, failed: NotSwitched, config: EngineConfig, *, ordered: bool) -> None:
        """A full disk says nothing about switching, and a trace or a probe that fails says nothing about the rest."""
        if failed.for_good:
            self._for_good[config.flags] = failed.reason
        elif not failed.of_machine and not ordered:
            self._failed_switches, self._last_reason = self._failed_switches + 1, failed.reason

    def room_failed(self, room: EngineConfig, failure: Failure) -> bool:
        """Whether to launch again instead of giving up. What may pass (see `_may_pass`) is held against the room only
        when it comes twice in a row, what else may be due to its size at once: `room_problem` then says so.

        It ends: a room that is to be launched again has a `room_problem` by its second failure.
        """
        if failure.kind not in OF_ITS_SIZE:
            return False
        self._failed_starts[room] += 1
        if self._failed_starts[room] == 1 and self._may_pass(room, failure):
            # the trial of one that was late is repeated as it was, if there are to be retries; no other is
            return failure.kind != "timeout"
        self._too_large[room] = f"a server with room for {room.triple} failed: {failure.message}"
        return True

    def _may_pass(self, room: EngineConfig, failure: Failure) -> bool:
        """A device or a link may fail once, weights be read from a cold disk, and memory that sufficed before be held
        by a server that has just ended."""
        return failure.kind in ("crash", "timeout") or (failure.kind == "oom" and _size(room) in self._started)

    def started(self, config: EngineConfig) -> None:
        """What has started was not too large. Where less room started and more never did, in whatever layout, the size
        was to blame, and not the layout."""
        self._started.add(_size(config))
        self._failed_starts.pop(config, None)
        self._too_large.pop(config, None)
        self._too_large_in_any_layout.pop(_size(config), None)
        for room, reason in self._too_large.items():
            is_less = room.layout == config.layout and why_not_switchable(room, config) is None
            if is_less and _size(room) not in self._started:
                self._too_large_in_any_layout[_size(room)] = reason

    def room_problem(self, room: EngineConfig) -> str | None:
        """Why there cannot be so much room, in one line; None if nobody knows a reason."""
        return self._too_large.get(room) or self._too_large_in_any_layout.get(_size(room))


def _size(config: EngineConfig) -> Size:
    return config.tp_size, config.flags, config.triple
