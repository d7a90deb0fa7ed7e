"""Waiting for a server: until it answers, dies, hangs after an error, or runs out of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.engines.guarded_process import GuardedProcess
from actors.engines.launch_log import DEATH, classify
from actors.engines.server_http import is_healthy, read_server_info
from results.failures import Failure

FIRST_POLL_S, SLOWEST_POLL_S = 0.1, 1.0

HUNG_AFTER_S = 20.0
"""How long a server may live on without a word after a worker died; SGLang ends itself within 6 s."""


def wait_until_ready(
    base_url: str, process: GuardedProcess, log: Path, timeout_s: float, given_up: Callable[[], bool]
) -> dict[str, Any] | Failure:
    """`/server_info` of the server once `/health` is well, or why that will not be.

    Blocks for at most `timeout_s`; returns early when the process ends, when its log shows an error after which
    nothing more happens, or when `given_up` (asked between polls) is true.
    """
    started = time.monotonic()
    watch = _LogWatch(log)
    pause = FIRST_POLL_S
    while True:
        if given_up():
            return Failure(phase="ready", kind="interrupted", message="stopped while the server was starting")
        if not process.alive:
            return classify(read_log(log), process.exit_status(), "ready")
        if is_healthy(base_url):
            try:
                return read_server_info(base_url)
            except (OSError, ValueError):
                pass  # it died or is still settling: the next round tells
        waited = time.monotonic() - started
        if waited > timeout_s or watch.hung():
            return classify(read_log(log), process.exit_status(), "ready", seconds=waited)
        time.sleep(pause)
        pause = min(pause * 1.5, SLOWEST_POLL_S)


def read_log(path: Path, max_bytes: int = 4_194_304) -> str:
    """The log, or its end when it is larger; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


class _LogWatch:
    """Notices the death of a worker after which the log stays silent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._error_seen = False
        self._changed = time.monotonic()

    def hung(self) -> bool:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return False
        if new:
            self._offset += len(new)
            self._changed = time.monotonic()
            self._error_seen = self._error_seen or DEATH.search(new.decode(errors="replace")) is not None
        return self._error_seen and time.monotonic() - self._changed > HUNG_AFTER_S
