"""Work that would keep the driver from looking after everything else, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class InBackground(Generic[Value]):
    """A call that runs from now on. Its thread does not keep the process alive."""

    def __init__(self, call: Callable[[], Value]) -> None:
        self._call = call
        self._values: list[Value] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether the call has ended; returns as soon as it has, at the latest after `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> Value:
        """What the call returned; what it raised is raised. Blocks until it has ended."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._values[0]

    def _run(self) -> None:
        try:
            self._values.append(self._call())
        except BaseException as error:
            self._error = error
