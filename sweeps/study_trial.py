"""A trial of the search as the study stores it: a plain value, whatever Optuna makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from search_spaces.config import Setting

State = Literal["waiting", "running", "complete", "pruned", "fail"]

_LOST: frozenset[str] = frozenset({"stale", "interrupted"})
"""Reasons of FAIL after which the trial was enqueued again."""


@dataclass(frozen=True, kw_only=True)
class StudyTrial:
    """One trial as it is stored. `setting` is None when its driver died before all parameters were chosen."""

    number: int
    state: State
    setting: Setting | None
    value: float | None
    attrs: Mapping[str, Any]

    @property
    def attempt(self) -> int:
        """How often this trial was begun, by this and earlier trials that it repeats; 1 for the first time."""
        return int(self.attrs.get("attempt", 1))

    @property
    def retry_of(self) -> int | None:
        """The number of the trial that this one repeats."""
        number = self.attrs.get("retry_of")
        return None if number is None else int(number)

    @property
    def role(self) -> str:
        return str(self.attrs.get("role", "search"))

    @property
    def was_lost(self) -> bool:
        """True for a trial that ended with its driver, not by itself."""
        return self.state == "fail" and self.attrs.get("reason") in _LOST
