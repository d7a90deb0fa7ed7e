"""The driver's loop: baselines, then what the study asks for, as many at once as the groups allow.

The order of writes is what makes a study safe against any death of its driver: the record is durable before the study
is told, and the study is told before the observers (the MLflow view, the terminal).
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from actors.job import TrialJob, TrialOutcome
from actors.load.workload import Workload
from results.failures import Failure
from results.objective import MissingValue, Objective
from results.records import TrialRecord
from search_spaces.config import EngineConfig, Setting
from search_spaces.errors import EnvironmentProblem
from search_spaces.rulings import Illegal
from sweeps.baselines import confirming_trials
from sweeps.budget import Budget, Limit, Spent, launch_limit, search_limit, trials_left
from sweeps.interrupts import StopRequest
from sweeps.ledger import FATAL, Ledger
from sweeps.legal_space import Candidate
from sweeps.observers import Observer
from sweeps.progress import Standing
from sweeps.recording import Store, record_of, write_record
from sweeps.rivals import best_so_far
from sweeps.study_trial import StudyTrial
from sweeps.tasks import FixedTrial, Task, open_tasks, search_task

WAIT_S = 0.25
"""How long the loop waits for a trial to end before it looks at signals and the clock again."""

ELAPSED = "specsweep.elapsed_s"
"""The study attribute with the time that drivers have spent on it."""
KEEP_TIME_S = 20.0

Reason = Literal["exhausted", "trials", "launches", "wall_time_s", "interrupted"]


class Study(Protocol):
    """What the loop needs of the search; `sweeps.study.SearchStudy` is one."""

    name: str

    def ask(self) -> StudyTrial: ...
    def tell_value(self, number: int, value: float, attrs: Mapping[str, Any]) -> None: ...
    def tell_failure(self, number: int, failure: Failure, attrs: Mapping[str, Any]) -> None: ...
    def requeue(self, trial: StudyTrial, *, attempt: int, reason: Literal["stale", "interrupted"]) -> None: ...
    def trials(self) -> tuple[StudyTrial, ...]: ...
    @property
    def waiting(self) -> int: ...
    def attr(self, name: str) -> Any: ...
    def set_attr(self, name: str, value: Any) -> None: ...


class Space(Protocol):
    """What the loop needs of the legal space; `sweeps.legal_space.LegalSpace` is one."""

    @property
    def configs(self) -> tuple[EngineConfig, ...]: ...
    def candidate(self, setting: Setting) -> Candidate | Illegal: ...


class Pool(Protocol):
    """What the loop needs of the groups; `actors.group_pool.GroupPool` is one."""

    def has_room(self) -> bool: ...
    def try_start(self, job: TrialJob) -> bool: ...
    def wait(self, timeout_s: float) -> Sequence[TrialOutcome]: ...


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """What one sweep is to do, beyond what the search chooses."""

    workload: Workload
    objective: Objective
    fixed: tuple[FixedTrial, ...]
    budget: Budget
    repeats: int
    retries: int
    confirmations: int = 0


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._study, self._store, self._pool = study, store, pool
        self._legal, self._ledger, self._plan = legal, ledger, plan
        self._observer, self._stop, self._heartbeat, self._clock = observer, stop, heartbeat, clock
        records = store.records()
        self._records = list(records)
        self._fixed = open_tasks(plan.fixed, records)
        self._launches = sum(_cost_a_launch(record) for record in records)
        self._durations_s = [record.finished_at_unix_s - record.started_at_unix_s for record in records if record.ok]
        self._done, self._failed = _tally(records)
        self._told = sum(_is_told(trial) for trial in study.trials())
        self._ready: deque[Task] = deque()
        self._running: dict[str, Task] = {}
        self._followers: defaultdict[str, list[StudyTrial]] = defaultdict(list)
        self._elapsed_before_s = float(study.attr(ELAPSED) or 0.0)
        self._started_s = clock()
        self._kept_time_s = clock()

    def run(self) -> Reason:
        """Returns when nothing is left, the budget is spent, or a stop was requested; nothing runs any more then.

        EnvironmentProblem when a trial shows that none could succeed here; it is recorded, and what ran beside it will
        be begun again by the next driver.
        """
        self._report()
        try:
            while not self._stop.requested:
                self._fill()
                if not self._running and not self._confirm():
                    return self._end()
                for outcome in self._pool.wait(WAIT_S):
                    self._finish(outcome)
                self._tick()
            return "interrupted"
        finally:
            self._abandon()
            self._keep_time()

    def _fill(self) -> None:
        while (task := self._next()) is not None:
            if not self._pool.try_start(self._job(task)):
                self._ready.appendleft(task)
                return
            self._running[task.trial_id] = task
            self._launches += 1
            self._ledger.start(task.config)
            self._observer.started(task)
            self._report()

    def _confirm(self) -> bool:
        """Once the search is over: queue a fresh launch of its winner. False when none is left to do."""
        if launch_limit(self._plan.budget, self._spent()) is not None or not self._nothing_to_ask():
            return False
        records = self._store.records()
        wanted = open_tasks(confirming_trials(records, self._plan.objective, self._plan.confirmations), records)
        if not wanted:
            return False
        self._ready.extend(task for _, task in wanted[:1])
        self._fill()
        return bool(self._running)

    def _next(self) -> Task | None:
        """The next task to launch: what waits already, then fixed trials that are due, then the search's choice."""
        if launch_limit(self._plan.budget, self._spent()) is not None:
            return None
        if self._ready:
            return self._ready.popleft()
        for i, (due_after, task) in enumerate(self._fixed):
            if self._told >= due_after or self._nothing_to_ask():
                del self._fixed[i]
                return task
        return self._ask() if self._pool.has_room() else None

    def _ask(self) -> Task | None:
        while not self._nothing_to_ask():
            trial = self._study.ask()
            assert trial.setting is not None
            candidate = self._legal.candidate(trial.setting)
            if isinstance(candidate, Illegal):
                # only a trial that somebody enqueued by hand
                refused = Failure(phase="launch", kind="bad_config", message=f"{candidate.rule}: {candidate.message}")
                self._tell_failure(trial, refused, {})
                continue
            config = candidate.config
            known = self._ledger.answer(config)
            if known is not None:
                self._answer(trial, known)
            elif (reason := self._ledger.refusal(config)) is not None:
                self._tell_failure(trial, Failure(phase="launch", kind="bad_config", message=reason), {})
            elif (small := self._ledger.larger_than_memory(config)) is not None:
                message = f"not launched: {small.triple} ran out of memory and {config.triple} needs at least as much"
                self._tell_failure(trial, Failure(phase="launch", kind="oom", message=message), {})
            elif self._ledger.is_running(config) and self._ledger.launches(config) >= self._plan.repeats:
                self._followers[config.identity].append(trial)
            else:
                return search_task(trial, config)
        return None

    def _nothing_to_ask(self) -> bool:
        if search_limit(self._plan.budget, self._spent()) is not None:
            return True
        return not self._study.waiting and not any(self._ledger.is_open(config) for config in self._legal.configs)

    def _finish(self, outcome: TrialOutcome) -> None:
        task = self._running.pop(outcome.trial_id)
        record = record_of(self._study.name, task, outcome)
        write_record(self._store, record, outcome)
        self._records.append(record)
        self._launches -= not _cost_a_launch(record)
        self._ledger.end(task.config)
        self._ledger.add(record)
        fatal = record.failure if record.failure is not None and record.failure.kind in FATAL else None
        again = self._may_retry(task, record)
        if fatal is not None and task.trial is not None:
            self._study.requeue(task.trial, attempt=task.attempt, reason="interrupted")
        elif again:
            self._ready.append(task.again())
        else:
            self._settle(task, record)
        if record.ok:
            self._durations_s.append(record.finished_at_unix_s - record.started_at_unix_s)
        self._observer.finished(record)
        self._report()
        if fatal is not None:
            raise EnvironmentProblem(f"trial {record.trial_id}: {fatal.message}")

    def _may_retry(self, task: Task, record: TrialRecord) -> bool:
        failure = record.failure
        tried = task.attempt - task.first_attempt
        return failure is not None and failure.is_infrastructure and tried < self._plan.retries

    def _settle(self, task: Task, record: TrialRecord) -> None:
        """The trial is over: tell the study, then the trials that waited for the same configuration."""
        self._done += 1
        self._failed += not record.ok
        if record.failure is not None and record.failure.is_infrastructure:
            self._ledger.give_up(task.config)
        if task.trial is not None:
            self._tell(task.trial, record, {"trial_id": record.trial_id, "effective": task.config.identity})
        for trial in self._followers.pop(task.config.identity, ()):
            if self._ledger.answer(task.config) is not None or not record.ok:
                self._answer(trial, record)
            else:
                self._ready.append(search_task(trial, task.config))

    def _answer(self, trial: StudyTrial, record: TrialRecord) -> None:
        attrs = {"answered_from": record.trial_id, "effective": record.effective.identity}
        self._tell(trial, record, attrs)
        self._observer.answered(trial, record)
        self._report()

    def _tell(self, trial: StudyTrial, record: TrialRecord, attrs: Mapping[str, Any]) -> None:
        tell_record(self._study, trial, record, self._plan.objective, attrs)
        self._told += 1

    def _tell_failure(self, trial: StudyTrial, failure: Failure, attrs: Mapping[str, Any]) -> None:
        self._study.tell_failure(trial.number, failure, attrs)
        self._told += 1

    def _abandon(self) -> None:
        """Give back what was begun or asked and will not be finished here: the next driver begins it again."""
        for task in self._running.values():
            self._ledger.end(task.config)
            if task.trial is not None:
                self._study.requeue(task.trial, attempt=task.attempt, reason="interrupted")
            self._observer.interrupted(task)
        self._running.clear()
        for task in self._ready:
            if task.trial is not None:
                self._study.requeue(task.trial, attempt=task.attempt - 1, reason="interrupted")
        self._ready.clear()
        for trials in self._followers.values():
            for trial in trials:
                self._study.requeue(trial, attempt=trial.attempt - 1, reason="interrupted")
        self._followers.clear()

    def _end(self) -> Reason:
        limit: Limit | None = search_limit(self._plan.budget, self._spent())
        if self._ready and limit is None:
            size = self._ready[0].config.tp_size
            raise EnvironmentProblem(f"cluster: no group for tp_size {size} can be opened although nothing runs")
        left = self._study.waiting or any(self._ledger.is_open(config) for config in self._legal.configs)
        return limit if limit is not None and (left or self._ready or self._fixed) else "exhausted"

    def _job(self, task: Task) -> TrialJob:
        searching = task.role == "search" and self._plan.workload.half_width is not None
        return TrialJob(
            trial_id=task.trial_id,
            config=task.config,
            workload=self._plan.workload,
            fresh=task.fresh,
            rival=best_so_far(self._records, self._plan.objective) if searching else None,
        )

    def _spent(self) -> Spent:
        asked = sum(task.trial is not None for task in (*self._running.values(), *self._ready))
        following = sum(len(trials) for trials in self._followers.values())
        return Spent(trials=self._told + asked + following, launches=self._launches, elapsed_s=self._elapsed_s())

    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + self._clock() - self._started_s

    def _tick(self) -> None:
        self._heartbeat()
        if self._clock() - self._kept_time_s >= KEEP_TIME_S:
            self._keep_time()
            self._report()

    def _keep_time(self) -> None:
        self._kept_time_s = self._clock()
        self._study.set_attr(ELAPSED, round(self._elapsed_s(), 1))

    def _report(self) -> None:
        self._observer.standing(self.standing())

    def standing(self) -> Standing:
        """Where the sweep stands now. The time left assumes that trials go on taking as long as they did."""
        possible = sum(self._launches_possible(config) for config in self._legal.configs)
        left = trials_left(self._plan.budget, self._spent(), possible) + len(self._ready) + len(self._fixed)
        mean_s = sum(self._durations_s) / len(self._durations_s) if self._durations_s else None
        running = len(self._running)
        time_left_s = None if mean_s is None else mean_s * (left + running / 2) / max(1, running)
        return Standing(
            done=self._done,
            failed=self._failed,
            running=running,
            left=left,
            elapsed_s=self._elapsed_s(),
            time_left_s=time_left_s,
        )

    def _launches_possible(self, config: EngineConfig) -> int:
        return self._plan.repeats - self._ledger.launches(config) if self._ledger.is_open(config) else 0


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


def _cost_a_launch(record: TrialRecord) -> bool:
    """False when a running server was switched to the trial's configuration."""
    return record.launch is None or record.launch.weights_loaded


def _is_told(trial: StudyTrial) -> bool:
    """Whether a trial counts against the budget: it ended by itself."""
    return trial.state in ("complete", "pruned") or (trial.state == "fail" and not trial.was_lost)


def _tally(records: Sequence[TrialRecord]) -> tuple[int, int]:
    """How many trials are done and how many of these failed, each by its latest attempt."""
    repeated = {record.retry_of for record in records}
    last = [record for record in records if record.trial_id not in repeated]
    return len(last), sum(not record.ok for record in last)
