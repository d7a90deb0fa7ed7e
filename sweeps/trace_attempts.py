"""The jobs of one session of tracing: one after the other, so that one server is enough, each retried a few times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from actors.job import TrialJob, TrialOutcome
from actors.load.workload import Prompt
from results.trace_launches import TraceJournal
from sweeps.interrupts import StopRequest
from sweeps.machine_failures import MachineFailures
from sweeps.seams import WAIT_S, Pool
from sweeps.switching import server_kind

MayBegin = Callable[[int, bool], bool]
"""(servers started so far in this session, whether the next job starts one) to whether the budget allows that job."""


class TraceAttempts:
    """`was_stopped` once a job was not begun, not tried again or cut off because of a signal or the budget; `problem`
    once no further job would succeed here, as for trials."""

    def __init__(
        self,
        *,
        pool: Pool,
        stop: StopRequest,
        heartbeat: Callable[[], None],
        may_begin: MayBegin,
        retries: int,
        journal: TraceJournal,
    ) -> None:
        self._pool, self._stop, self._heartbeat = pool, stop, heartbeat
        self._may_begin, self._retries, self._journal = may_begin, retries, journal
        self._machine_failures = MachineFailures()
        self.was_stopped = False
        self.problem: str | None = None

    def run(self, job: TrialJob) -> Iterator[TrialOutcome]:
        """The job's outcomes, one an attempt, retried where it is not to blame; none when nothing more is to be traced.

        A retry asks for what the attempts before it did not trace. Its group takes the place of their files: keep each
        outcome's before the next.
        """
        for attempt in range(self._retries + 1):
            if not self._goes_on(job):
                return
            outcome = self._once(replace(job, trial_id=f"{job.trial_id}-a{attempt + 1}"))
            if outcome is None:
                return
            failure = outcome.failure
            self.problem = self._machine_failures.problem_of_all(job.config, failure)
            yield outcome
            left = _left_of(job, outcome)
            if self.problem is not None or failure is None or not failure.is_infrastructure or not left:
                return
            job = replace(job, workload=replace(job.workload, prompts=left))

    def _goes_on(self, job: TrialJob) -> bool:
        starts = self._journal.needs_server(server_kind(job.config), job.config)
        if self._stop.requested or not self._may_begin(self._journal.weight_loads, starts):
            self.was_stopped = True
        return not self.was_stopped

    def _once(self, job: TrialJob) -> TrialOutcome | None:
        # noted before it begins: a driver that dies must not lose the launch
        self._journal.begin(job.trial_id, server_kind(job.config), job.config)
        while not self._pool.try_start(job):
            if self._stop.requested:
                self._journal.withdraw()
                self.was_stopped = True
                return None
            self._pool.wait(WAIT_S)
            self._heartbeat()
        while not self._stop.requested:
            for outcome in self._pool.wait(WAIT_S):
                if outcome.trial_id == job.trial_id:
                    self._journal.end(server_starts=outcome.server_starts, failed=outcome.failure is not None)
                    return outcome
            self._heartbeat()
        self.was_stopped = True
        return None


def _left_of(job: TrialJob, outcome: TrialOutcome) -> tuple[Prompt, ...]:
    segments = () if outcome.traced is None else outcome.traced.segments
    done = {prompt.prompt_id for segment in segments for prompt in segment.prompts}
    return tuple(prompt for prompt in job.workload.prompts if prompt.prompt_id not in done)
