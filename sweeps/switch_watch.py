"""Watches over switching while a sweep runs: what was measured both ways is compared as soon as it is there."""

from __future__ import annotations

import logging
from collections.abc import Callable

from results.records import CONFIRMING, TrialRecord
from results.switch_comparison import judge_switching
from results.switch_trust import SwitchTrust
from sweeps.progress import Standing
from sweeps.recording import Store
from sweeps.study_trial import StudyTrial
from sweeps.tasks import Task

LOG = logging.getLogger(__name__)


class SwitchWatch:
    """An `Observer`. `distrusted` from the first difference beyond noise on, over all sessions of a study."""

    def __init__(self, store: Store, say: Callable[[str], None]) -> None:
        self._store, self._say = store, say
        self.trust = SwitchTrust(checks=())
        self._records = list(store.records())
        self._judge()

    @property
    def distrusted(self) -> bool:
        return not self.trust.trusted

    def finished(self, record: TrialRecord) -> None:
        self._records.append(record)
        fresh = {other.effective for other in self._records if other.role in CONFIRMING}
        if record.ok and not self.distrusted and record.effective in fresh:
            self._judge()

    def _judge(self) -> None:
        self.trust = judge_switching(self._records, self._store.rows)
        for problem in self.trust.problems:
            LOG.warning("servers are not switched any more: %s", problem)
            self._say(f"servers are not switched any more: {problem}")

    def started(self, task: Task) -> None:
        """Nothing."""

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        """Nothing: it was compared when it was measured."""

    def interrupted(self, task: Task) -> None:
        """Nothing: it has no record."""

    def said(self, line: str) -> None:
        """Nothing."""

    def standing(self, standing: Standing) -> None:
        """Nothing."""
