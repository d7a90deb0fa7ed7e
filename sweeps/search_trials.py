"""The trials of the search: asked of the study, answered from records, made to wait for an equal one, told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from results.failures import Failure
from results.objective import MissingValue, Objective
from results.records import TrialRecord
from search_spaces.config import EngineConfig
from search_spaces.rulings import Illegal
from sweeps.ledger import Ledger
from sweeps.seams import Space, Study
from sweeps.study_trial import StudyTrial
from sweeps.tasks import Task, search_task


class SearchTrials:
    """What one driver asks and tells. A trial equal to a running one follows it and is told with it.

    `answered` is called after a trial was told from the record of an equal one. `enough` may end the search although
    settings are left; what was enqueued is still asked for.
    """

    def __init__(
        self,
        *,
        study: Study,
        legal: Space,
        ledger: Ledger,
        objective: Objective,
        repeats: int,
        answered: Callable[[StudyTrial, TrialRecord], None],
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        self._study, self._legal, self._ledger = study, legal, ledger
        self._objective, self._repeats, self._answered = objective, repeats, answered
        self._enough = enough
        self._followers: defaultdict[str, list[StudyTrial]] = defaultdict(list)
        self._put_off: list[tuple[Task, TrialRecord]] = []
        self.told = sum(_is_told(trial) for trial in study.trials())

    @property
    def untold(self) -> int:
        """How many trials wait for an equal one that runs, or were put off."""
        put_off = sum(task.trial is not None for task, _ in self._put_off)
        return put_off + sum(len(trials) for trials in self._followers.values())

    @property
    def has_more(self) -> bool:
        """Whether the study has trials enqueued, or configurations that it may and is to propose."""
        return bool(self._study.waiting) or (self.has_open and not self._enough())

    @property
    def has_open(self) -> bool:
        """Whether there are configurations that the study may still propose."""
        return any(self._ledger.is_open(config) for config in self._legal.configs)

    @property
    def launches_possible(self) -> int:
        """How many launches the space still holds, whatever the budget says; none once it is enough."""
        if self._enough():
            return 0
        return sum(
            self._repeats - self._ledger.launches(config)
            for config in self._legal.configs
            if self._ledger.is_open(config)
        )

    def ask(self) -> Task | None:
        """Ask for one trial: a task to launch, or None when it was told at once or follows a running one."""
        trial = self._study.ask()
        assert trial.setting is not None
        candidate = self._legal.candidate(trial.setting)
        if isinstance(candidate, Illegal):
            # only a trial that somebody enqueued by hand
            self._refuse(trial, Failure(phase="launch", kind="bad_config", message=_rule(candidate)))
            return None
        config = candidate.config
        known = self._ledger.answer(config)
        if known is not None:
            self._answer(trial, known)
        elif (reason := self._ledger.refusal(config)) is not None:
            self._refuse(trial, Failure(phase="launch", kind="bad_config", message=reason))
        elif (small := self._ledger.larger_than_memory(config)) is not None:
            self._refuse(trial, Failure(phase="launch", kind="oom", message=_too_large(config, small)))
        elif self._ledger.is_running(config) and self._ledger.launches(config) >= self._repeats:
            self._followers[config.identity].append(trial)
        else:
            return search_task(trial, config)
        return None

    def settle(self, task: Task, record: TrialRecord) -> list[Task]:
        """The task ended with this record: tell its trial and those that followed it. Returns what is to be launched
        for followers that the record does not answer."""
        if record.failure is not None and record.failure.is_infrastructure:
            self._ledger.give_up(task.config)
        if task.trial is not None:
            self._tell(task.trial, record, {"trial_id": record.trial_id, "effective": task.config.identity})
        left = []
        for trial in self._followers.pop(task.config.identity, ()):
            if self._ledger.answer(task.config) is not None or not record.ok:
                self._answer(trial, record)
            else:
                left.append(search_task(trial, task.config))
        return left

    def put_off(self, task: Task, record: TrialRecord) -> None:
        """The machine failed the task, retries and all: it is not proposed again here, and settled once others show
        whose fault that was."""
        self._ledger.give_up(task.config)
        self._put_off.append((task, record))

    def settle_put_off(self) -> None:
        """Others run, or none is left: what was put off is over."""
        put_off, self._put_off = self._put_off, []
        for task, record in put_off:
            self.settle(task, record)

    def give_back(self, begun: Iterable[Task], waiting: Iterable[Task]) -> None:
        """Requeue the trials of tasks that will not be finished here, those put off, and those that follow: the next
        driver asks for them again."""
        for task in (*begun, *(task for task, _ in self._put_off)):
            if task.trial is not None:
                self._study.requeue(task.trial, attempt=task.attempt, reason="interrupted")
        for task in waiting:
            if task.trial is not None:
                self._study.requeue(task.trial, attempt=task.attempt - 1, reason="interrupted")
        for trials in self._followers.values():
            for trial in trials:
                self._study.requeue(trial, attempt=trial.attempt - 1, reason="interrupted")
        self._followers.clear()
        self._put_off.clear()

    def _answer(self, trial: StudyTrial, record: TrialRecord) -> None:
        self._tell(trial, record, {"answered_from": record.trial_id, "effective": record.effective.identity})
        self._answered(trial, record)

    def _tell(self, trial: StudyTrial, record: TrialRecord, attrs: Mapping[str, Any]) -> None:
        tell_record(self._study, trial, record, self._objective, attrs)
        self.told += 1

    def _refuse(self, trial: StudyTrial, failure: Failure) -> None:
        self._study.tell_failure(trial.number, failure, {})
        self.told += 1


def tell_record(
    study: Study, trial: StudyTrial, record: TrialRecord, objective: Objective, attrs: Mapping[str, Any]
) -> None:
    """Tell a trial from a record: its value, or why there is none. A missing value is never told as a number."""
    if record.failure is not None:
        study.tell_failure(trial.number, record.failure, attrs)
        return
    value = objective.value(record)
    if isinstance(value, MissingValue):
        reason = " ".join(value.reason.split())
        study.tell_failure(trial.number, Failure(phase="record", kind="no_metric", message=reason), attrs)
    else:
        study.tell_value(trial.number, value, attrs)


def _rule(illegal: Illegal) -> str:
    return f"{illegal.rule}: {illegal.message}"


def _too_large(config: EngineConfig, small: EngineConfig) -> str:
    return f"not launched: {small.triple} ran out of memory and {config.triple} needs at least as much"


def _is_told(trial: StudyTrial) -> bool:
    """Whether a trial counts against the budget: it ended by itself."""
    return trial.state in ("complete", "pruned") or (trial.state == "fail" and not trial.was_lost)
