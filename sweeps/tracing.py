"""Running traces: jobs in the pool, one after the other on one server, each kept before the next begins."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.end_tokens import end_ids_of
from actors.job import TraceTask, TrialJob, TrialOutcome
from actors.load.workload import Prompt, Workload
from actors.tracing import MAX_PASSES
from results.failures import Failure
from results.measured_settings import RowsOf
from results.pool_trace_file import record_type
from results.records import TrialRecord
from results.trace_launches import TraceJournal
from results.trace_segments import keep_segments
from search_spaces.model_facts import TargetFacts
from sweeps.interrupts import StopRequest
from sweeps.seams import WAIT_S, Pool
from sweeps.switching import server_kind
from sweeps.trace_plans import PlannedTrace

LOG = logging.getLogger(__name__)

JOB_BYTES = 48 * 2**20
"""How much is traced before it is kept, roughly: what a driver or server that dies can lose. A single prompt that needs
more has a job of its own."""
JOB_PROMPTS = 32
HEAD_BYTES = 4096
"""The most that a trace file holds beside its records."""
MAX_FAILED = 2
"""After so many failures without a success between them nothing more is traced: the servers cannot do it."""


@dataclass(frozen=True, kw_only=True)
class FinishedTrace:
    """How a trace stands after a run. `failure` is why it is not whole; `problems` are prompts to know about."""

    plan: PlannedTrace
    prompts: int
    problems: tuple[str, ...]
    failure: Failure | None

    def to_json(self) -> dict[str, Any]:
        failure = self.failure and {
            "phase": self.failure.phase,
            "kind": self.failure.kind,
            "message": self.failure.message,
            "log_tail": self.failure.log_tail,
        }
        known = {key: value for key, value in self.plan.to_json().items() if not key.startswith("prompts_")}
        return {**known, "prompts": self.prompts, "problems": list(self.problems), "failure": failure}


@dataclass(frozen=True, kw_only=True)
class TraceRun:
    """One session of tracing. `weight_loads` are the servers that were started for it; `stopped` by a signal or the
    budget, and then not all of `traces` are whole."""

    traces: tuple[FinishedTrace, ...]
    weight_loads: int
    elapsed_s: float
    stopped: bool

    @property
    def failures(self) -> tuple[FinishedTrace, ...]:
        return tuple(trace for trace in self.traces if trace.failure is not None)


def known_texts(
    records: Sequence[TrialRecord], rows_of: RowsOf, workload_id: str, tp_size: int
) -> dict[str, tuple[int, ...]]:
    """Output ids by prompt id from the baseline, that of this TP size first; empty without one."""
    baselines = [record for record in records if record.role == "baseline" and record.ok]
    baselines.sort(key=lambda record: record.effective.tp_size != tp_size)
    texts: dict[str, tuple[int, ...]] = {}
    for record in baselines:
        if all(cell.workload_id != workload_id for cell in record.cells):
            continue
        for rows in rows_of(record.trial_id).values():
            for row in rows:
                if row.error is None and row.output_ids:
                    texts.setdefault(row.prompt_id, row.output_ids)
        if texts:
            break
    return texts


def run_traces(
    plans: Sequence[PlannedTrace],
    *,
    pool: Pool,
    traces: Path,
    workload: Workload,
    target: TargetFacts,
    expected: Mapping[str, tuple[int, ...]],
    stop: StopRequest,
    retries: int = 0,
    say: Callable[[str], None] = LOG.info,
    heartbeat: Callable[[], None] = lambda: None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> TraceRun:
    """Trace what is left of each plan, job by job on one server, and keep every job's result before the next begins.

    Blocks. A failed trace keeps what it had and does not keep the others from being traced.
    """
    journal = TraceJournal(traces)
    run = _TraceRun(pool=pool, stop=stop, heartbeat=heartbeat, may_go_on=may_go_on, retries=retries, journal=journal)
    tracer = _Tracer(workload=workload, target=target, expected=expected)
    started = time.monotonic()
    finished: list[FinishedTrace] = []
    failed_in_a_row = 0
    for plan in plans:
        prompts, problems, failure = plan.done, list[str](), None
        for job in tracer.jobs(plan):
            outcome = run.job(job) if failed_in_a_row < MAX_FAILED else None
            if outcome is None:
                break
            if outcome.traced is not None:
                keep_segments(traces, outcome.traced)
                prompts += sum(len(segment.prompts) for segment in outcome.traced.segments)
                problems += outcome.traced.problems
            failure = outcome.failure
            if failure is not None:
                failed_in_a_row += 1
                say(f"trace of {plan.words}: failed: {failure.kind} in {failure.phase}: {failure.message}")
                break
            failed_in_a_row = 0
            say(f"traced     {plan.words}: {prompts} of {plan.done + len(plan.left)} prompts")
        finished.append(FinishedTrace(plan=plan, prompts=prompts, problems=tuple(problems), failure=failure))
    return TraceRun(
        traces=tuple(finished),
        weight_loads=journal.weight_loads,
        elapsed_s=time.monotonic() - started,
        stopped=not run.goes_on,
    )


def nothing_to_trace(plans: Sequence[PlannedTrace]) -> TraceRun:
    """What a run gives that may start nothing: `stopped` unless everything is traced already."""
    done = tuple(FinishedTrace(plan=plan, prompts=plan.done, problems=(), failure=None) for plan in plans)
    return TraceRun(traces=done, weight_loads=0, elapsed_s=0.0, stopped=any(plan.left for plan in plans))


class _Tracer:
    """Makes the jobs of a plan."""

    def __init__(self, *, workload: Workload, target: TargetFacts, expected: Mapping[str, tuple[int, ...]]) -> None:
        self._workload, self._vocabulary, self._expected = workload, target.vocab_size, expected
        self._end_ids = end_ids_of(target)

    def jobs(self, plan: PlannedTrace) -> Iterator[TrialJob]:
        """As many prompts a job as fit into it twice: a prompt that is traced again is in both of its segments."""
        assert plan.config.triple is not None
        steps, topk = plan.config.triple.num_steps, plan.config.triple.eagle_topk
        prompt_bytes = record_type(steps, topk).itemsize * (self._workload.max_new_tokens + steps) + HEAD_BYTES
        size = max(1, min(JOB_PROMPTS, JOB_BYTES // (2 * prompt_bytes)))
        for start in range(0, len(plan.left), size):
            batch = plan.left[start : start + size]
            yield TrialJob(
                trial_id=f"trace-{plan.config.identity[:8]}-{plan.done + start}",
                config=plan.config,
                workload=replace(self._workload, prompts=batch, warmup=(), half_width=None),
                trace=self._task(batch, max(JOB_BYTES, MAX_PASSES * prompt_bytes)),
            )

    def _task(self, batch: Sequence[Prompt], max_bytes: int) -> TraceTask:
        ids = [prompt.prompt_id for prompt in batch]
        return TraceTask(
            workload_id=self._workload.workload_id,
            concurrency=max(self._workload.concurrency, default=1),
            vocabulary=self._vocabulary,
            end_ids=self._end_ids,
            max_bytes=max_bytes,
            expected={key: self._expected[key] for key in ids if key in self._expected},
        )


class _TraceRun:
    """Runs jobs one after the other, so that one server is enough."""

    def __init__(
        self,
        *,
        pool: Pool,
        stop: StopRequest,
        heartbeat: Callable[[], None],
        may_go_on: Callable[[], bool],
        retries: int,
        journal: TraceJournal,
    ) -> None:
        self._pool, self._stop, self._heartbeat = pool, stop, heartbeat
        self._may_go_on, self._retries, self._journal = may_go_on, retries, journal

    @property
    def goes_on(self) -> bool:
        return not self._stop.requested and self._may_go_on()

    def job(self, job: TrialJob) -> TrialOutcome | None:
        """The job's outcome after retries of what it did not cause; None when nothing more is to be traced."""
        if not self.goes_on:
            return None
        for attempt in range(self._retries + 1):
            outcome = self._once(replace(job, trial_id=f"{job.trial_id}-a{attempt + 1}"))
            if outcome is None:
                return None
            if outcome.failure is None or not outcome.failure.is_infrastructure or not self.goes_on:
                break
        return outcome

    def _once(self, job: TrialJob) -> TrialOutcome | None:
        # noted before it begins: a driver that dies must not lose the launch
        self._journal.begin(job.trial_id, server_kind(job.config))
        while not self._pool.try_start(job):
            if self._stop.requested:
                self._journal.withdraw()
                return None
            self._pool.wait(WAIT_S)
            self._heartbeat()
        while not self._stop.requested:
            for outcome in self._pool.wait(WAIT_S):
                if outcome.trial_id == job.trial_id:
                    loaded = None if outcome.launch is None else outcome.launch.weights_loaded
                    self._journal.end(weights_loaded=loaded, failed=outcome.failure is not None)
                    return outcome
            self._heartbeat()
        return None
