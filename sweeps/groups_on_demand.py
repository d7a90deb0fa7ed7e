"""Groups that are opened when a trial first wants one: a study with nothing left to do starts no Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType

from actors.group_pool import GroupPool
from actors.job import TrialJob, TrialOutcome
from actors.placement import Device


class GroupsOnDemand:
    """A pool like the one it opens. `groups` is what opens it; both end with the context. `opened` is called then."""

    def __init__(
        self, groups: contextlib.AbstractContextManager[GroupPool], opened: Callable[[], None] = lambda: None
    ) -> None:
        self._groups, self._tell_opened = groups, opened
        self._opened = contextlib.ExitStack()
        self._pool: GroupPool | None = None

    def open(self) -> GroupPool:
        """Open the groups if they are not; EnvironmentProblem when the cluster or the engine is missing."""
        if self._pool is None:
            self._pool = self._opened.enter_context(self._groups)
            self._tell_opened()
        return self._pool

    @property
    def device(self) -> Device:
        return self.open().device

    def has_room(self) -> bool:
        return self.open().has_room()

    def try_start(self, job: TrialJob) -> bool:
        return self.open().try_start(job)

    def wait(self, timeout_s: float) -> Sequence[TrialOutcome]:
        return self.open().wait(timeout_s)

    def close(self, *, interrupt: bool = False) -> None:
        """End what was opened; idempotent."""
        if self._pool is not None:
            self._pool.close(interrupt=interrupt)

    def __enter__(self) -> GroupsOnDemand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._opened.__exit__(kind, error, trace)
