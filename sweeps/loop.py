"""The driver's loop: baselines, then what the study asks for, as many at once as the groups allow.

The order of writes is what makes a study safe against any death of its driver: the record is durable before the study
is told, and the study is told before the observers (the MLflow view, the terminal).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from actors.job import TrialJob, TrialOutcome
from actors.load.workload import Workload
from results.objective import Objective
from results.records import TrialRecord
from search_spaces.config import EngineConfig
from search_spaces.errors import EnvironmentProblem
from sweeps.baselines import confirming_trials
from sweeps.budget import Budget, Limit, Spent, launch_limit, search_limit, trials_left
from sweeps.interrupts import StopRequest
from sweeps.ledger import FATAL, Ledger, counts_as_result
from sweeps.observers import Observer
from sweeps.progress import Standing
from sweeps.recording import Store, record_of, write_record
from sweeps.rivals import best_so_far
from sweeps.seams import WAIT_S, Pool, Space, Study
from sweeps.search_trials import SearchTrials
from sweeps.study_trial import StudyTrial
from sweeps.tally import DriverTime, Tally
from sweeps.tasks import FixedTrial, Task, open_tasks

Reason = Literal["exhausted", "trials", "launches", "wall_time_s", "gain", "interrupted"]

MACHINE_FAILURES = 3
"""So many failures of kind `machine` in a row, of two settings at least, and the machine is to be mended first."""


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """What one sweep is to do, beyond what the search chooses. `launches_before` are server starts without a record,
    such as a trace's."""

    workload: Workload
    objective: Objective
    fixed: tuple[FixedTrial, ...]
    budget: Budget
    repeats: int
    retries: int
    confirmations: int = 0
    launches_before: int = 0


class SweepLoop:
    """Runs one session of a study to its end. The caller owns study, store and pool, and closes them."""

    def __init__(
        self,
        *,
        study: Study,
        store: Store,
        pool: Pool,
        legal: Space,
        ledger: Ledger,
        plan: LoopPlan,
        observer: Observer,
        stop: StopRequest,
        heartbeat: Callable[[], None],
        enough: Callable[[], bool] = lambda: False,
        must_launch: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`enough` may end the search although settings are left. While `must_launch`, no server is switched."""
        self._study, self._store, self._pool, self._ledger, self._plan = study, store, pool, ledger, plan
        self._observer, self._stop, self._heartbeat = observer, stop, heartbeat
        self._records = list(store.records())
        self._fixed = open_tasks(plan.fixed, self._records)
        self._tally = Tally(self._records, launches_before=plan.launches_before)
        self._time = DriverTime(study, clock)
        self._search = SearchTrials(
            study=study,
            legal=legal,
            ledger=ledger,
            objective=plan.objective,
            repeats=plan.repeats,
            answered=self._answered,
            enough=enough,
        )
        self._must_launch = must_launch
        self._ready: deque[Task] = deque()
        self._running: dict[str, Task] = {}
        self._confirming: set[str] = set()  # what was begun of it here: more than its retries would never end
        self._machine_failed: list[EngineConfig] = []  # one after the other, without a result in between

    def run(self) -> Reason:
        """Returns when nothing is left, the budget is spent, or a stop was requested; nothing runs any more then.

        EnvironmentProblem when a trial shows that none could succeed here, or several that the machine must be mended;
        they are recorded, and they and what ran beside them will be begun again by the next driver.
        """
        self._report()
        try:
            while not self._stop.requested:
                self._fill()
                if not self._running:
                    self._search.settle_put_off()
                    if not self._confirm():
                        return self._end()
                for outcome in self._pool.wait(WAIT_S):
                    self._finish(outcome)
                self._tick()
            return "interrupted"
        finally:
            self._abandon()
            self._time.keep()

    def standing(self) -> Standing:
        """Where the sweep stands now."""
        left = trials_left(self._plan.budget, self._spent(), self._search.launches_possible)
        return self._tally.standing(
            running=len(self._running),
            left=left + len(self._ready) + len(self._fixed),
            elapsed_s=self._time.elapsed_s,
        )

    def _fill(self) -> None:
        while (task := self._next()) is not None:
            if not self._pool.try_start(self._job(task)):
                self._ready.appendleft(task)
                return
            self._running[task.trial_id] = task
            self._tally.started()
            self._ledger.start(task.config)
            self._observer.started(task)
            self._report()

    def _confirm(self) -> bool:
        """Once the search is over: queue a fresh launch of what leads. False when none is left to do."""
        if self._may_ask or not self._plan.confirmations:
            return False
        if launch_limit(self._plan.budget, self._spent()) is not None:
            return False
        records = self._store.records()
        confirming = confirming_trials(records, self._plan.objective, self._plan.confirmations, self._store.rows)
        wanted = [task for _, task in open_tasks(confirming, records) if task.base not in self._confirming]
        if not wanted:
            return False
        self._confirming.add(wanted[0].base)
        self._ready.append(wanted[0])
        self._fill()
        return bool(self._running)

    def _next(self) -> Task | None:
        """The next task to launch: what waits already, then fixed trials that are due, then the search's choice."""
        if launch_limit(self._plan.budget, self._spent()) is not None:
            return None
        if self._ready:
            return self._ready.popleft()
        for i, (due_after, task) in enumerate(self._fixed):
            is_due = self._search.told >= due_after and not task.before_its_tp
            if is_due or not self._may_ask:
                del self._fixed[i]
                return task
        # a pool may be slow to say whether it has room the first time
        asked = self._ask() if self._may_ask and self._pool.has_room() else None
        return None if asked is None else self._first_at_its_tp(asked)

    def _first_at_its_tp(self, asked: Task) -> Task:
        """The asked trial, or what is to come before the first one of its TP size; the trial then waits."""
        for i, (_, task) in enumerate(self._fixed):
            if task.before_its_tp and task.config.tp_size == asked.config.tp_size:
                del self._fixed[i]
                self._ready.append(asked)
                return task
        return asked

    def _ask(self) -> Task | None:
        while self._may_ask:
            task = self._search.ask()
            if task is not None:
                return task
        return None

    @property
    def _may_ask(self) -> bool:
        """Whether the search goes on: it has something to propose, and the budget for it."""
        return self._search.has_more and search_limit(self._plan.budget, self._spent()) is None

    def _finish(self, outcome: TrialOutcome) -> None:
        task = self._running.pop(outcome.trial_id)
        record = record_of(self._study.name, task, outcome)
        write_record(self._store, record, outcome)
        self._records.append(record)
        self._tally.ended(record)
        self._ledger.end(task.config)
        self._ledger.add(record)
        problem = self._problem_of_all(record)
        if problem is not None:
            self._search.give_back((task,), ())
        elif self._may_retry(task, record):
            self._ready.append(task.again())
        else:
            self._tally.settled(record)
            if record.failure is not None and record.failure.kind == "machine":
                self._search.put_off(task, record)
            else:
                self._ready.extend(self._search.settle(task, record))
        self._observer.finished(record)
        self._report()
        if problem is not None:
            raise EnvironmentProblem(f"trial {record.trial_id}: {problem}")

    def _problem_of_all(self, record: TrialRecord) -> str | None:
        """Why no further trial would succeed here, as far as this one's end tells; None while others may."""
        failure = record.failure
        if failure is None or counts_as_result(record):
            self._machine_failed.clear()
            self._search.settle_put_off()
            return None
        if failure.kind in FATAL:
            return failure.message
        if failure.kind != "machine":
            return None
        self._machine_failed.append(record.effective)
        if len(self._machine_failed) < MACHINE_FAILURES or len(set(self._machine_failed)) < 2:
            return None
        return f"{failure.message} ({len(self._machine_failed)} launches in a row failed because of the machine)"

    def _may_retry(self, task: Task, record: TrialRecord) -> bool:
        failure = record.failure
        tried = task.attempt - task.first_attempt
        return failure is not None and failure.is_infrastructure and tried < self._plan.retries

    def _answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        self._observer.answered(trial, record)
        self._report()

    def _abandon(self) -> None:
        """Give back what was begun or asked and will not be finished here: the next driver begins it again."""
        for task in self._running.values():
            self._ledger.end(task.config)
        self._search.give_back(self._running.values(), self._ready)
        for task in self._running.values():
            self._observer.interrupted(task)
        self._running.clear()
        self._ready.clear()

    def _end(self) -> Reason:
        """Why nothing is left to start, now that nothing runs."""
        limit: Limit | None = search_limit(self._plan.budget, self._spent())
        if self._ready and limit is None:
            size = self._ready[0].config.tp_size
            raise EnvironmentProblem(f"cluster: no group for tp_size {size} can be opened although nothing runs")
        if limit is not None and (self._search.has_more or self._ready or self._fixed):
            return limit
        return "gain" if self._search.has_open else "exhausted"

    def _job(self, task: Task) -> TrialJob:
        searching = task.role == "search" and self._plan.workload.half_width is not None
        return TrialJob(
            trial_id=task.trial_id,
            config=task.config,
            workload=self._plan.workload,
            fresh=task.fresh or self._must_launch() or self._was_measured(task.config),
            rival=best_so_far(self._records, self._plan.objective) if searching else None,
        )

    def _was_measured(self, config: EngineConfig) -> bool:
        """A repeat is to tell how launches differ: not by the server that runs already. After a check it is no repeat:
        the setting is then measured by a switch, which is what is checked."""
        return any(record.cells and record.effective == config for record in self._records if record.role != "check")

    def _spent(self) -> Spent:
        asked = sum(task.trial is not None for task in (*self._running.values(), *self._ready))
        return Spent(
            trials=self._search.told + asked + self._search.untold,
            launches=self._tally.launches,
            elapsed_s=self._time.elapsed_s,
        )

    def _tick(self) -> None:
        self._heartbeat()
        if self._time.is_due:
            self._time.keep()
            self._report()

    def _report(self) -> None:
        self._observer.standing(self.standing())
