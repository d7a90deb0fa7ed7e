"""The driver's loop: baselines, then what the study asks for, as many at once as the groups allow.

The order of writes is what makes a study safe against any death of its driver: the record is durable before the study
is told, and the study is told before the observers (the MLflow view, the terminal).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from actors.job import TrialOutcome
from results.records import TrialRecord
from search_spaces.errors import EnvironmentProblem
from sweeps.agenda import Agenda
from sweeps.baselines import confirming_trials
from sweeps.budget import Limit, Spent, launch_limit, search_limit, trials_left
from sweeps.interrupts import StopRequest
from sweeps.jobs import job_of
from sweeps.ledger import Ledger, counts_as_result
from sweeps.loop_plan import LoopPlan, Reason
from sweeps.machine_failures import MachineFailures
from sweeps.observers import Observer
from sweeps.progress import Standing
from sweeps.recording import Store, record_of, write_record
from sweeps.seams import WAIT_S, Pool, Space, Study
from sweeps.search_trials import SearchTrials
from sweeps.study_trial import StudyTrial
from sweeps.tally import DriverTime, Tally
from sweeps.tasks import Task, open_tasks


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
        self._agenda = Agenda(open_tasks(plan.fixed, self._records))
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
        self._running: dict[str, Task] = {}
        self._confirming: set[str] = set()  # what was begun of it here: more than its retries would never end
        self._machine_failures = MachineFailures()

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
            left=left + len(self._agenda),
            elapsed_s=self._time.elapsed_s,
        )

    def _fill(self) -> None:
        while (task := self._next()) is not None:
            job = job_of(task, self._plan, self._records, must_launch=self._must_launch())
            if not self._pool.try_start(job):
                self._agenda.put_back(task)
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
        self._agenda.add(wanted[:1])
        self._fill()
        return bool(self._running)

    def _next(self) -> Task | None:
        """The next task to launch: what waits already, then fixed trials that are due, then the search's choice."""
        if launch_limit(self._plan.budget, self._spent()) is not None:
            return None
        task = self._agenda.take(begun=self._spent().trials, search_is_over=lambda: not self._may_ask)
        if task is not None:
            return task
        # a pool may be slow to say whether it has room the first time
        asked = self._ask() if self._may_ask and self._pool.has_room() else None
        return None if asked is None else self._agenda.first_at_its_tp(asked)

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
        problem = self._machine_failures.problem_of_all(record.effective, record.failure)
        if counts_as_result(record):
            self._search.settle_put_off()
        if problem is not None:
            self._search.give_back((task,), ())
        elif self._may_retry(task, record):
            self._agenda.add((task.again(),))
        else:
            self._tally.settled(record)
            if record.failure is not None and record.failure.kind == "machine":
                self._search.put_off(task, record)
            else:
                self._agenda.add(self._search.settle(task, record))
        self._observer.finished(record)
        self._report()
        if problem is not None:
            raise EnvironmentProblem(f"trial {record.trial_id}: {problem}")

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
        self._search.give_back(self._running.values(), self._agenda.ready)
        for task in self._running.values():
            self._observer.interrupted(task)
        self._running.clear()
        self._agenda.drop_ready()

    def _end(self) -> Reason:
        """Why nothing is left to start, now that nothing runs."""
        limit: Limit | None = search_limit(self._plan.budget, self._spent())
        if self._agenda.ready and limit is None:
            size = self._agenda.ready[0].config.tp_size
            raise EnvironmentProblem(f"cluster: no group for tp_size {size} can be opened although nothing runs")
        if limit is not None and (self._search.has_more or self._agenda):
            return limit
        return "gain" if self._search.has_open else "exhausted"

    def _spent(self) -> Spent:
        asked = sum(task.trial is not None for task in (*self._running.values(), *self._agenda.ready))
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
