"""The MLflow view as an observer of the sweep."""

from __future__ import annotations

from collections.abc import Sequence

from results.mlflow_view import MlflowView
from results.records import TrialRecord
from sweeps.progress import Standing
from sweeps.study_trial import StudyTrial
from sweeps.tasks import Task


class MlflowObserver:
    """Writes each attempt to the view. `records` are those that are stored already, for speedups over baselines."""

    def __init__(self, view: MlflowView, records: Sequence[TrialRecord]) -> None:
        self._view = view
        self._records = list(records)

    def started(self, task: Task) -> None:
        self._view.start_run(
            task.trial_id, setting=task.setting, effective=task.config, role=task.role, retry_of=task.retry_of
        )

    def finished(self, record: TrialRecord) -> None:
        self._view.finish(record, self._records)
        self._records.append(record)

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        """Nothing: a run stands for a launch."""

    def interrupted(self, task: Task) -> None:
        self._view.kill(task.trial_id)

    def said(self, line: str) -> None:
        """Nothing: the view shows trials."""

    def standing(self, standing: Standing) -> None:
        """Nothing: the view shows trials."""
