"""The durable record of one trial: asked, effective, seen, summarised. Written once, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from results.failures import Failure
from results.observations import LaunchObservation, server_starts
from results.summary import CellSummary
from search_spaces.config import EngineConfig, Setting

RECORD_SCHEMA = 1

Role = Literal["search", "baseline", "suspect", "reference", "corner", "confirm", "check"]

CONFIRMING: frozenset[Role] = frozenset({"confirm", "check"})
"""Roles of fresh launches that were not chosen for their value: a winner's, and of a setting measured both ways."""


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """What happened in one attempt at one trial.

    `trial_id` is unique in a study and names the record's folder. `number` is Optuna's trial number, None for trials
    outside the search (baselines, confirmations). `setting` is None for a baseline. `effective` is what the server ran
    when it was read back, else what our rules predict. `cells` are empty when `failure` is set before measuring.
    `warm_up_s` is how long the requests before the first cell took; None when none were sent, or it was not noted.
    `ended_s` is how long servers took to end, before or after, that had no further use.
    """

    schema: int
    study: str
    trial_id: str
    number: int | None
    attempt: int
    retry_of: str | None
    role: Role
    setting: Setting | None
    effective: EngineConfig
    started_at_unix_s: float
    finished_at_unix_s: float
    launch: LaunchObservation | None
    cells: tuple[CellSummary, ...]
    failure: Failure | None
    findings: tuple[str, ...] = ()
    warm_up_s: float | None = None
    ended_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def server_starts(self) -> int:
        """How many servers were started for it; one where nobody noted it."""
        known = server_starts(self.launch, self.failure)
        return 1 if known is None else known
