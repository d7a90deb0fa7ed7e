"""What failures of single trials and traces say about the machine: whether any other could succeed on it. Pure."""

from __future__ import annotations

from results.failures import Failure
from search_spaces.config import EngineConfig
from sweeps.ledger import FATAL

MACHINE_FAILURES = 3
"""So many failures of kind `machine` in a row, of two settings at least, and the machine is to be mended first."""


class MachineFailures:
    """The failures of kind `machine` that came one after the other, without a result in between."""

    def __init__(self) -> None:
        self._failed: list[EngineConfig] = []

    def problem_of_all(self, config: EngineConfig, failure: Failure | None) -> str | None:
        """Why no further trial or trace would succeed here, as far as the end of one of `config` tells; None while
        others may. Every end is to be shown once, in their order."""
        if failure is not None and failure.kind in FATAL:
            return failure.message
        if failure is None or not failure.is_infrastructure:
            self._failed.clear()
            return None
        if failure.kind != "machine":
            return None
        self._failed.append(config)
        if len(self._failed) < MACHINE_FAILURES or len(set(self._failed)) < 2:
            return None
        return f"{failure.message} ({len(self._failed)} launches in a row failed because of the machine)"
