"""Failure as a value: where it happened, of what kind, in one line, with the end of the server's log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Phase = Literal["placement", "launch", "ready", "verify", "warmup", "measure", "record"]
Kind = Literal[
    "bad_config",  # the engine refuses the configuration
    "oom",  # out of device or host memory
    "crash",  # the server died
    "timeout",  # not ready, or a request unanswered, within the limit
    "mismatch",  # the server runs something else than was asked and predicted
    "simulated",  # acceptance is simulated, so nothing measured would be true
    "port_in_use",
    "environment",  # where servers start a variable spoils what is measured, or others could change what they run
    "machine",  # where the server runs the disk is full or fails, or nothing more can be opened
    "no_engine",  # SGLang is not importable in the engine's interpreter
    "client",  # requests failed although the server lives
    "no_metric",  # measured, but the objective's value is missing
    "placement",  # the cluster gave other devices than asked, or none within the limit
    "lost_actor",
    "lost_node",
    "interrupted",
]

INFRASTRUCTURE: frozenset[str] = frozenset(
    {"timeout", "port_in_use", "machine", "placement", "lost_actor", "lost_node", "interrupted"}
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed trial's cause. `message` is a single line.

    `server_starts` is how many servers were started for the trial, if it failed before one could be measured; None when
    nobody noted it.
    """

    phase: Phase
    kind: Kind
    message: str
    log_tail: str = ""
    server_starts: int | None = None

    def __post_init__(self) -> None:
        if "\n" in self.message or not self.message:
            raise ValueError(f"a failure's message is one line, not {self.message!r}")

    @property
    def is_infrastructure(self) -> bool:
        """True when the configuration is not to blame: retried a few times, never taught to the search."""
        return self.kind in INFRASTRUCTURE

    def counted(self, starts: int) -> Failure:
        """The same after so many server starts."""
        return replace(self, server_starts=starts)
