"""From a task and its outcome to the durable record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from actors.job import TrialOutcome
from results.cells import summarised
from results.observations import RequestRow
from results.observed_cells import OBSERVED_FILE, encode_cells
from results.records import RECORD_SCHEMA, TrialRecord
from results.request_table import CellKey
from sweeps.tasks import Task

SERVER_LOG = "server.log"


class Store(Protocol):
    """Where records live; `results.store.StudyFolder` is one."""

    def write_trial(
        self, record: TrialRecord, rows_by_cell: Mapping[CellKey, Sequence[RequestRow]], files: Mapping[str, bytes]
    ) -> object:
        """Durable and whole when it returns; FileExistsError when the trial is there already."""
        ...

    def records(self) -> tuple[TrialRecord, ...]: ...
    def rows(self, trial_id: str) -> Mapping[CellKey, Sequence[RequestRow]]: ...


def record_of(study: str, task: Task, outcome: TrialOutcome) -> TrialRecord:
    """The record of one attempt. Pure.

    The engine has verified that the server runs the predicted configuration, or the outcome is a failure; so the task's
    configuration is the effective one.
    """
    launch = outcome.launch
    return TrialRecord(
        schema=RECORD_SCHEMA,
        study=study,
        trial_id=task.trial_id,
        number=task.number,
        attempt=task.attempt,
        retry_of=task.retry_of,
        role=task.role,
        setting=task.setting,
        effective=task.config,
        started_at_unix_s=outcome.started_at_unix_s,
        finished_at_unix_s=outcome.finished_at_unix_s,
        launch=launch,
        cells=tuple(summarised(cell, launch, task.config.triple) for cell in outcome.cells),
        failure=outcome.failure,
        findings=outcome.findings,
        warm_up_s=outcome.warm_up_s,
        ended_s=outcome.ended_s,
    )


def write_record(store: Store, record: TrialRecord, outcome: TrialOutcome) -> None:
    """Put the record, all that was observed and the server's log on disk."""
    rows: dict[CellKey, Sequence[RequestRow]] = {
        (cell.concurrency, cell.request_rate): cell.rows for cell in outcome.cells
    }
    files = {SERVER_LOG: outcome.server_log.encode(), OBSERVED_FILE: encode_cells(outcome.cells)}
    store.write_trial(record, rows, files)
