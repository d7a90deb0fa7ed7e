"""What a sweep tells of itself while it runs: to the terminal, to the MLflow view, to anybody else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from results.records import TrialRecord
from sweeps.progress import Standing
from sweeps.study_trial import StudyTrial
from sweeps.tasks import Task


class Observer(Protocol):
    """Told after the fact, in the driver's thread, in order. Must return soon and must not raise.

    When `finished` is called the record is durable and the study has been told.
    """

    def started(self, task: Task) -> None:
        """An attempt was handed to a GPU group."""
        ...

    def finished(self, record: TrialRecord) -> None:
        """An attempt ended, well or not."""
        ...

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        """A trial of the search was answered from the record of an equal one, without a launch."""
        ...

    def interrupted(self, task: Task) -> None:
        """An attempt was broken off with the driver; it leaves no record and will be begun again."""
        ...

    def said(self, line: str) -> None:
        """News of something that is no trial, such as a trace."""
        ...

    def standing(self, standing: Standing) -> None:
        """Where the sweep stands; after every event, and now and then without one."""
        ...


class Observers:
    """Several observers as one, told in the order given."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)

    def started(self, task: Task) -> None:
        for observer in self._observers:
            observer.started(task)

    def finished(self, record: TrialRecord) -> None:
        for observer in self._observers:
            observer.finished(record)

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        for observer in self._observers:
            observer.answered(trial, record)

    def interrupted(self, task: Task) -> None:
        for observer in self._observers:
            observer.interrupted(task)

    def said(self, line: str) -> None:
        for observer in self._observers:
            observer.said(line)

    def standing(self, standing: Standing) -> None:
        for observer in self._observers:
            observer.standing(standing)
