"""Running traces: jobs in the pool, one after the other on one server, each kept before the next begins."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.end_tokens import end_ids_of
from actors.job import TraceTask, TrialJob
from actors.load.workload import Prompt, Workload
from actors.tracing import MAX_PASSES
from results.failures import Failure
from results.measured_settings import RowsOf
from results.pool_trace_file import record_type
from results.records import TrialRecord
from results.trace_launches import TraceJournal
from results.trace_segments import keep_segments, keep_untraceable
from search_spaces.errors import EnvironmentProblem
from search_spaces.model_facts import TargetFacts
from sweeps.interrupts import StopRequest
from sweeps.seams import Pool
from sweeps.trace_attempts import MayBegin, TraceAttempts
from sweeps.trace_plans import PlannedTrace

LOG = logging.getLogger(__name__)

JOB_BYTES = 48 * 2**20
"""How much is traced before it is kept, roughly: what a driver or server that dies can lose. A single prompt that needs
more has a job of its own."""
JOB_PROMPTS = 32
HEAD_BYTES = 4096
"""The most that a trace file holds beside its records."""
MAX_FAILED = 2
"""After so many failures without a traced prompt between them nothing more is traced: the servers cannot do it."""


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
    may_begin: MayBegin = lambda launched, starts: True,
) -> TraceRun:
    """Trace what is left of each plan, job by job on one server, and keep every job's result before the next begins.

    Blocks. A failed trace keeps what it had and does not keep the others from being traced, but for MAX_FAILED of them.
    EnvironmentProblem when a failure shows that none could succeed here, or several that the machine must be mended.
    """
    journal = TraceJournal(traces)
    attempts = TraceAttempts(
        pool=pool, stop=stop, heartbeat=heartbeat, may_begin=may_begin, retries=retries, journal=journal
    )
    tracer = _Tracer(workload=workload, target=target, expected=expected)
    started = time.monotonic()
    finished: list[FinishedTrace] = []
    failed: list[Failure] = []  # one after the other, without a traced prompt in between
    for plan in plans:
        if plan.left and len(failed) >= MAX_FAILED:
            failure = replace(failed[-1], message=f"not tried: {len(failed)} failures in a row before it", log_tail="")
            finished.append(FinishedTrace(plan=plan, prompts=plan.done, problems=plan.untraceable, failure=failure))
            continue
        trace = _trace(plan, tracer.jobs(plan), attempts, traces, say)
        finished.append(trace)
        if trace.prompts > plan.done:
            failed.clear()
        if trace.failure is not None:
            if trace.failure.kind != "machine":  # that says nothing about the servers
                failed.append(trace.failure)
            say(
                f"trace of {plan.words}: failed: {trace.failure.kind} in {trace.failure.phase}: {trace.failure.message}"
            )
    return TraceRun(
        traces=tuple(finished),
        weight_loads=journal.weight_loads,
        elapsed_s=time.monotonic() - started,
        stopped=attempts.was_stopped,
    )


def _trace(
    plan: PlannedTrace, jobs: Iterable[TrialJob], attempts: TraceAttempts, traces: Path, say: Callable[[str], None]
) -> FinishedTrace:
    """One plan, as far as it goes. Prompts that cannot be traced are no failure, unless none can.

    They are noted, and not tried again by any driver, once the trace has a prompt: a server that refuses them all may
    have another reason.
    """
    prompts, problems, failure = plan.done, list(plan.untraceable), None
    untraceable: dict[str, str] = {}
    for job in jobs:
        outcome = None
        for outcome in attempts.run(job):
            if outcome.traced is not None:
                problems += outcome.traced.problems
                untraceable |= outcome.traced.untraceable
            if outcome.traced is not None and outcome.traced.segments:
                keep_segments(traces, outcome.traced)
                prompts += sum(len(segment.prompts) for segment in outcome.traced.segments)
            if outcome.traced is not None and prompts:
                keep_untraceable(traces, outcome.traced.facts, untraceable)
            if attempts.problem is not None:
                raise EnvironmentProblem(f"trace of {plan.words}: {attempts.problem}")
            failure = outcome.failure
        if outcome is None or failure is not None:
            break
        say(f"traced     {plan.words}: {prompts} of {plan.wanted} prompts")
    else:
        if plan.left and not prompts:
            message = "; ".join(["no prompt could be traced", *problems[:1]])
            failure = Failure(phase="measure", kind="client", message=message)
    return FinishedTrace(plan=plan, prompts=prompts, problems=tuple(problems), failure=failure)


def nothing_to_trace(plans: Sequence[PlannedTrace]) -> TraceRun:
    """What a run gives that may start nothing: `stopped` unless everything is traced already."""
    done = tuple(FinishedTrace(plan=plan, prompts=plan.done, problems=plan.untraceable, failure=None) for plan in plans)
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
