"""The agenda: tasks that wait to be launched, and fixed trials until they are due. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from sweeps.tasks import Task


class Agenda:
    """What one driver has still to launch, beside what the search will choose. `fixed` are tasks with the number of
    begun trials after which each is due."""

    def __init__(self, fixed: Iterable[tuple[int, Task]]) -> None:
        self._fixed = list(fixed)
        self._ready: deque[Task] = deque()

    def __len__(self) -> int:
        return len(self._ready) + len(self._fixed)

    @property
    def ready(self) -> tuple[Task, ...]:
        """What may be launched at once, in its order."""
        return tuple(self._ready)

    def add(self, tasks: Iterable[Task]) -> None:
        """These may be launched, after what is ready already."""
        self._ready.extend(tasks)

    def put_back(self, task: Task) -> None:
        """There was no room for this one: it is the next again."""
        self._ready.appendleft(task)

    def take(self, *, begun: int, search_is_over: Callable[[], bool]) -> Task | None:
        """The next task: what is ready, then the first fixed trial that is due, once the search is over in any case.

        None when there is no such task. `search_is_over` may be costly and is asked only where it matters.
        """
        if self._ready:
            return self._ready.popleft()
        for i, (due_after, task) in enumerate(self._fixed):
            is_due = begun >= due_after and not task.before_its_tp
            if is_due or search_is_over():
                del self._fixed[i]
                return task
        return None

    def first_at_its_tp(self, asked: Task) -> Task:
        """The task that the search asked for, or what is to come before the first one of its TP size; it then waits."""
        for i, (_, task) in enumerate(self._fixed):
            if task.before_its_tp and task.config.tp_size == asked.config.tp_size:
                del self._fixed[i]
                self._ready.append(asked)
                return task
        return asked

    def drop_ready(self) -> None:
        """Forget what is ready; fixed trials stay."""
        self._ready.clear()
