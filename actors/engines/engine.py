"""The engine seam: something that can be brought into a configuration and then answers on a URL."""

from __future__ import annotations

from typing import Protocol

from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig


class Engine(Protocol):
    """Owns at most one server. Not thread-safe; one actor drives it."""

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        """Bring the server into `config`; blocks until it answers or has failed.

        A running server in the same configuration is kept, and `weights_loaded` is then False. After a Failure nothing
        runs any more.
        """
        ...

    @property
    def base_url(self) -> str:
        """Where the server that was started last answers, without a trailing slash, also when it has ended since: a
        load in another thread then finds nobody there. RuntimeError when none was started."""
        ...

    def failure_now(self) -> Failure | None:
        """Why the server does not answer if it has died since `apply`, with its log's tail, or if the engine was
        closed; None while it lives."""
        ...

    def log_tail(self, max_bytes: int = 65536) -> str:
        """The end of the server's log, empty when none was started."""
        ...

    def close(self) -> None:
        """Stop what was started; idempotent; returns when no process, port or memory of it is left."""
        ...
