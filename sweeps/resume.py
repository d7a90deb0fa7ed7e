"""Resume: what the records say against what the study says. Finished trials happen exactly once. Pure.

A trial of the search goes: asked (RUNNING) -> record written -> told. Killed after the record it is told from
it; killed before, it is failed as stale and enqueued once more. The same steps serve a driver that is told to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from results.records import TrialRecord
from search_spaces.errors import InputError
from sweeps.ledger import counts_as_result
from sweeps.study_trial import StudyTrial

MAX_ATTEMPTS = 5
"""A trial during which the driver died this often is not tried again: it may be what kills the driver."""


@dataclass(frozen=True, kw_only=True)
class Stale:
    """A trial whose driver is gone and that has no final record; `attempt` is the last one begun."""

    trial: StudyTrial
    attempt: int

    @property
    def again(self) -> bool:
        return self.attempt < MAX_ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What is to be done before the search goes on, in this order."""

    tell: tuple[tuple[StudyTrial, TrialRecord], ...]
    stale: tuple[Stale, ...]


def reconcile(trials: Iterable[StudyTrial], records: Iterable[TrialRecord], *, retries: int) -> Reconciliation:
    """Compare the study with the records. InputError when the records belong to another storage."""
    trials = tuple(trials)
    by_number = _latest_by_number(records)
    unknown = sorted(by_number.keys() - {trial.number for trial in trials})
    if unknown:
        raise InputError(
            f"search.storage: the records know trial {unknown[0]} but the storage holds {len(trials)} trials; "
            "it is another study's storage or an older copy"
        )
    tell, stale = [], []
    for trial in trials:
        if trial.state != "running":
            continue
        record = by_number.get(trial.number)
        if record is not None and (counts_as_result(record) or record.attempt - trial.attempt >= retries):
            tell.append((trial, record))
        else:
            stale.append(Stale(trial=trial, attempt=trial.attempt if record is None else record.attempt))
    return Reconciliation(tell=tuple(tell), stale=tuple(stale))


def _latest_by_number(records: Iterable[TrialRecord]) -> Mapping[int, TrialRecord]:
    latest: dict[int, TrialRecord] = {}
    for record in records:
        if record.number is not None and (
            record.number not in latest or latest[record.number].attempt < record.attempt
        ):
            latest[record.number] = record
    return latest
