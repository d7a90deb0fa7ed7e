"""What the failures of single trials say about the machine: whether any further trial could succeed on it. Pure."""

from __future__ import annotations

from results.records import TrialRecord
from search_spaces.config import EngineConfig
from sweeps.ledger import FATAL, counts_as_result

MACHINE_FAILURES = 3
"""So many failures of kind `machine` in a row, of two settings at least, and the machine is to be mended first."""


class MachineFailures:
    """The failures of kind `machine` that came one after the other, without a result in between."""

    def __init__(self) -> None:
        self._failed: list[EngineConfig] = []

    def problem_of_all(self, record: TrialRecord) -> str | None:
        """Why no further trial would succeed here, as far as the end of this one tells; None while others may. Every
        record is to be shown once, in the order of the ends."""
        failure = record.failure
        if failure is None or counts_as_result(record):
            self._failed.clear()
            return None
        if failure.kind in FATAL:
            return failure.message
        if failure.kind != "machine":
            return None
        self._failed.append(record.effective)
        if len(self._failed) < MACHINE_FAILURES or len(set(self._failed)) < 2:
            return None
        return f"{failure.message} ({len(self._failed)} launches in a row failed because of the machine)"
