"""Tasks: one attempt at one trial, as the driver holds it before and while it runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from results.records import CONFIRMING, Role, TrialRecord
from search_spaces.config import EngineConfig, Setting
from sweeps.ledger import counts_as_result
from sweeps.study_trial import StudyTrial


@dataclass(frozen=True, kw_only=True)
class Task:
    """One attempt. `base` names the trial whatever the attempt; `first_attempt` is where this driver began to count.

    `fresh` asks for a launch of its own even where a running server could be switched. `before_its_tp` is as for a
    `FixedTrial`.
    """

    base: str
    role: Role
    setting: Setting | None
    config: EngineConfig
    trial: StudyTrial | None
    attempt: int
    first_attempt: int
    retry_of: str | None
    fresh: bool = False
    before_its_tp: bool = False

    @property
    def trial_id(self) -> str:
        return f"{self.base}-a{self.attempt}"

    @property
    def number(self) -> int | None:
        return None if self.trial is None else self.trial.number

    def again(self) -> Task:
        """The next attempt at the same trial."""
        return replace(self, attempt=self.attempt + 1, retry_of=self.trial_id)


def search_task(trial: StudyTrial, config: EngineConfig) -> Task:
    """The task of a trial that the study asked for."""
    attempt, repeated = trial.attempt, trial.retry_of
    return Task(
        base=search_base(trial.number),
        role="suspect" if trial.role == "suspect" else "search",
        setting=trial.setting,
        config=config,
        trial=trial,
        attempt=attempt,
        first_attempt=attempt,
        # only an attempt that was begun has an id; a trial that was merely asked is repeated with the same count
        retry_of=None if repeated is None or attempt == 1 else f"{search_base(repeated)}-a{attempt - 1}",
    )


def search_base(number: int) -> str:
    """The name of a trial of the search; ordered as the numbers are."""
    return f"t{number:04d}"


@dataclass(frozen=True, kw_only=True)
class FixedTrial:
    """A trial that the search does not choose, such as a baseline. It starts once `due_after` trials of the search
    were begun, with `before_its_tp` right before the first one of its TP size, at the latest when the search is over.
    """

    base: str
    role: Role
    setting: Setting | None
    config: EngineConfig
    due_after: int = 0
    before_its_tp: bool = False


def open_tasks(fixed: Iterable[FixedTrial], records: Iterable[TrialRecord]) -> list[tuple[int, Task]]:
    """What is left of the fixed trials, with the number of begun trials after which each is due.

    A trial that measured, or failed by its own fault, is done; any other is tried again under its next attempt.
    """
    records = tuple(records)
    tasks = []
    for trial in fixed:
        earlier = [record for record in records if record.trial_id.rpartition("-a")[0] == trial.base]
        if any(counts_as_result(record) for record in earlier):
            continue
        last = max(earlier, key=lambda record: record.attempt, default=None)
        attempt = 1 if last is None else last.attempt + 1
        task = Task(
            base=trial.base,
            role=trial.role,
            setting=trial.setting,
            config=trial.config,
            trial=None,
            attempt=attempt,
            first_attempt=attempt,
            retry_of=None if last is None else last.trial_id,
            fresh=trial.role in CONFIRMING,
            before_its_tp=trial.before_its_tp,
        )
        tasks.append((trial.due_after, task))
    return tasks
