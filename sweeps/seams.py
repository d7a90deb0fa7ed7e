"""What the driver's loop needs of the search, of the legal space and of the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from actors.job import TrialJob, TrialOutcome
from results.failures import Failure
from search_spaces.config import EngineConfig, Setting
from search_spaces.rulings import Illegal
from sweeps.legal_space import Candidate
from sweeps.study_trial import StudyTrial

WAIT_S = 0.25
"""How long a driver waits for a trial to end before it looks at signals and the clock again."""


class Study(Protocol):
    """The search; `sweeps.study.SearchStudy` is one."""

    name: str

    def ask(self) -> StudyTrial: ...
    def tell_value(self, number: int, value: float, attrs: Mapping[str, Any]) -> None: ...
    def tell_failure(self, number: int, failure: Failure, attrs: Mapping[str, Any]) -> None: ...
    def requeue(self, trial: StudyTrial, *, attempt: int, reason: Literal["stale", "interrupted"]) -> None: ...
    def trials(self) -> tuple[StudyTrial, ...]: ...
    @property
    def waiting(self) -> int: ...
    def attr(self, name: str) -> Any: ...
    def set_attr(self, name: str, value: Any) -> None: ...


class Space(Protocol):
    """The legal space; `sweeps.legal_space.LegalSpace` is one."""

    @property
    def configs(self) -> tuple[EngineConfig, ...]: ...
    def candidate(self, setting: Setting) -> Candidate | Illegal: ...


class Pool(Protocol):
    """The groups; `actors.group_pool.GroupPool` is one."""

    def has_room(self) -> bool: ...
    def try_start(self, job: TrialJob) -> bool: ...
    def wait(self, timeout_s: float) -> Sequence[TrialOutcome]: ...
