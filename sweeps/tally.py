"""What a study has cost so far, over all sessions of its drivers: trials done, launches, time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from results.records import TrialRecord
from search_spaces.errors import EnvironmentProblem
from sweeps.progress import Standing
from sweeps.seams import Study

logger = logging.getLogger(__name__)

ELAPSED = "specsweep.elapsed_s"
"""The study attribute with the time that drivers have spent on it."""
KEEP_TIME_S = 20.0


class Tally:
    """Counts trials, each by its latest attempt, and the launches that were paid for. Rebuilt from the records.

    `launches_before` are server starts without a record, such as a trace's.
    """

    def __init__(self, records: Sequence[TrialRecord], *, launches_before: int = 0) -> None:
        repeated = {record.retry_of for record in records}
        last = [record for record in records if record.trial_id not in repeated]
        self._done, self._failed = len(last), sum(not record.ok for record in last)
        self._durations_s = [_duration_s(record) for record in records if record.ok]
        self.launches = launches_before + sum(record.server_starts for record in records)

    def started(self) -> None:
        """A trial starts; it counts as one launch until its record says how many it took."""
        self.launches += 1

    def ended(self, record: TrialRecord) -> None:
        """An attempt is over."""
        self.launches += record.server_starts - 1
        if record.ok:
            self._durations_s.append(_duration_s(record))

    def settled(self, record: TrialRecord) -> None:
        """The trial is over with this record, and not tried again."""
        self._done += 1
        self._failed += not record.ok

    def standing(self, *, running: int, left: int, elapsed_s: float) -> Standing:
        """Where the sweep stands. The time left assumes that trials go on taking as long as they did."""
        mean_s = sum(self._durations_s) / len(self._durations_s) if self._durations_s else None
        return Standing(
            done=self._done,
            failed=self._failed,
            running=running,
            left=left,
            elapsed_s=elapsed_s,
            time_left_s=None if mean_s is None else mean_s * (left + running / 2) / max(1, running),
        )


class DriverTime:
    """The time that drivers have spent on the study, this one included; kept in the study for the next."""

    def __init__(self, study: Study, clock: Callable[[], float] = time.monotonic) -> None:
        self._study, self._clock = study, clock
        self._before_s = float(study.attr(ELAPSED) or 0.0)
        self._started_s = self._kept_s = clock()

    @property
    def elapsed_s(self) -> float:
        return self._before_s + self._clock() - self._started_s

    @property
    def is_due(self) -> bool:
        """Whether it is time to keep the time again."""
        return self._clock() - self._kept_s >= KEEP_TIME_S

    def keep(self) -> None:
        """What the storage does not take now is kept the next time."""
        self._kept_s = self._clock()
        try:
            self._study.set_attr(ELAPSED, round(self.elapsed_s, 1))
        except EnvironmentProblem as problem:
            logger.warning("the time was not kept: %s", problem)


def _duration_s(record: TrialRecord) -> float:
    return record.finished_at_unix_s - record.started_at_unix_s
