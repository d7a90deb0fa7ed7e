"""A search with nothing to search: the loop then runs its fixed trials alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from search_spaces.config import EngineConfig, Setting
from search_spaces.rulings import Illegal
from sweeps.legal_space import Candidate
from sweeps.seams import Study
from sweeps.study_trial import StudyTrial


class NoSpace:
    """A space with nothing to search."""

    configs: tuple[EngineConfig, ...] = ()

    def candidate(self, setting: Setting) -> Candidate | Illegal:
        raise AssertionError("nothing is asked")


class NoSearch:
    """A study that asks for nothing and is told nothing. What it notes goes to the study `of` which it is a part."""

    waiting = 0

    def __init__(self, name: str, of: Study | None = None) -> None:
        self.name = name
        self._of = of

    def ask(self) -> StudyTrial:
        return self._never()

    def tell_value(self, number: int, value: float, attrs: Mapping[str, Any]) -> None:
        self._never()

    def tell_failure(self, number: int, failure: object, attrs: Mapping[str, Any]) -> None:
        self._never()

    def requeue(self, trial: StudyTrial, *, attempt: int, reason: Literal["stale", "interrupted"]) -> None:
        self._never()

    def trials(self) -> tuple[StudyTrial, ...]:
        return ()

    def attr(self, name: str) -> Any:
        return None if self._of is None else self._of.attr(name)

    def set_attr(self, name: str, value: Any) -> None:
        if self._of is not None:
            self._of.set_attr(name, value)

    def _never(self) -> NoReturn:
        raise AssertionError("a fixed trial has no trial of the study")
