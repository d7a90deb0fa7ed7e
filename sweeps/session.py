"""Opening a study for one driver, and bringing it to where its records end. Everything here needs the lease."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from results.objective import Objective
from results.records import TrialRecord
from sweeps.resume import Reconciliation, reconcile
from sweeps.search_trials import tell_record
from sweeps.study import SearchStudy

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What was done about a driver that died: trials told from their records, begun again, and given up."""

    told: tuple[int, ...]
    again: tuple[int, ...]
    given_up: tuple[int, ...]

    def __str__(self) -> str:
        parts = [
            f"{len(numbers)} {what}"
            for numbers, what in (
                (self.told, "told from their records"),
                (self.again, "to be run again"),
                (self.given_up, "given up"),
            )
            if numbers
        ]
        return "trials of a driver that died: " + (", ".join(parts) or "none")


def recover(study: SearchStudy, records: tuple[TrialRecord, ...], objective: Objective, *, retries: int) -> Recovered:
    """Put right what a dead driver left, before anything new is asked. Safe to be killed at any point and repeated."""
    found = reconcile(study.trials(), records, retries=retries)
    for trial, record in found.tell:
        attrs = {"trial_id": record.trial_id, "effective": record.effective.identity}
        tell_record(study, trial, record, objective, attrs)
    for stale in found.stale:
        if stale.again:
            study.requeue(stale.trial, attempt=stale.attempt, reason="stale")
        else:
            study.tell_lost(stale.trial.number, f"the driver died {stale.attempt} times during this trial")
    recovered = _summary(found)
    if recovered.told or recovered.again or recovered.given_up:
        logger.info("%s", recovered)
    return recovered


def _summary(found: Reconciliation) -> Recovered:
    return Recovered(
        told=tuple(trial.number for trial, _ in found.tell),
        again=tuple(stale.trial.number for stale in found.stale if stale.again),
        given_up=tuple(stale.trial.number for stale in found.stale if not stale.again),
    )
