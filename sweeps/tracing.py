"""Traces of a study: what is to be traced, how the jobs run in the pool, and where their results are kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.job import TraceTask, TrialJob, TrialOutcome
from actors.load.workload import Prompt, Workload
from actors.tracing import MAX_PASSES, end_ids_of, tracing_config
from results.failures import Failure
from results.measured_settings import RowsOf
from results.pool_trace_file import record_type
from results.records import TrialRecord
from results.trace_segments import keep_segments
from results.traces import read_prompts, trace_folder_name
from search_spaces.config import EngineConfig, layout_label
from search_spaces.errors import InputError
from search_spaces.model_facts import TargetFacts
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.interrupts import StopRequest
from sweeps.isolation_ends import setting_of_config
from sweeps.seams import WAIT_S, Pool

LOG = logging.getLogger(__name__)

JOB_BYTES = 48 * 2**20
"""How much of a trace travels back at once, which driver and actor hold in memory: half of our own Ray's object store.
A single prompt that needs more has a job of its own."""
JOB_PROMPTS = 32
HEAD_BYTES = 4096
"""The most that a trace file holds beside its records."""
MAX_FAILED = 2
"""After so many failures without a success between them nothing more is traced: the servers cannot do it."""


@dataclass(frozen=True, kw_only=True)
class TraceChoice:
    """What to trace of a space. Empty and None: every layout, every topk, the space's greatest steps at that topk, the
    smallest TP size, all prompts."""

    layouts: tuple[tuple[int, ...], ...] = ()
    topks: tuple[int, ...] = ()
    num_steps: int | None = None
    tp_size: int | None = None
    prompts: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedTrace:
    """One trace with the prompts that are still to be traced, `done` of them being there already."""

    config: EngineConfig
    left: tuple[Prompt, ...]
    done: int

    @property
    def words(self) -> str:
        layout, triple = self.config.layout, self.config.triple
        assert layout is not None
        assert triple is not None
        return (
            f"layout {layout_label(layout)}, tp {self.config.tp_size}, topk {triple.eagle_topk}, "
            f"{triple.num_steps} steps"
        )

    def to_json(self) -> dict[str, Any]:
        layout, triple = self.config.layout, self.config.triple
        assert layout is not None
        assert triple is not None
        return {
            "layout": layout_label(layout),
            "tp_size": self.config.tp_size,
            "eagle_topk": triple.eagle_topk,
            "num_steps": triple.num_steps,
            "prompts_left": len(self.left),
            "prompts_done": self.done,
        }


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


def trace_configs(
    configs: Iterable[EngineConfig], context: RuleContext, choice: TraceChoice
) -> tuple[EngineConfig, ...]:
    """The configurations to trace for the legal `configs` of a space, layout by layout.

    All have the flags of the first legal setting at that TP size, because other flags need another server. InputError
    when a choice is not in the space or SGLang would not run it.
    """
    speculating = [config for config in configs if config.triple is not None and config.layout is not None]
    if not speculating:
        raise InputError("space: has no speculative setting to trace")
    tp_size = choice.tp_size or min(config.tp_size for config in speculating)
    here = [config for config in speculating if config.tp_size == tp_size]
    if not here:
        sizes = ", ".join(str(size) for size in sorted({config.tp_size for config in speculating}))
        raise InputError(f"--tp: {tp_size} is not in the space (legal: {sizes})")
    deepest: dict[tuple[tuple[int, ...], int], int] = {}
    for config in here:
        assert config.layout is not None
        assert config.triple is not None
        key = (config.layout, config.triple.eagle_topk)
        deepest[key] = max(deepest.get(key, 0), config.triple.num_steps)
    layouts = choice.layouts or tuple(dict.fromkeys(layout for layout, _ in deepest))
    topks = choice.topks or tuple(sorted({topk for _, topk in deepest}))
    wanted = [
        tracing_config(
            EngineConfig(layout=layout, triple=here[0].triple, tp_size=tp_size, flags=here[0].flags),
            num_steps=choice.num_steps or deepest.get((layout, topk)) or max(deepest.values()),
            eagle_topk=topk,
        )
        for layout in layouts
        for topk in topks
        if choice.layouts or choice.topks or (layout, topk) in deepest
    ]
    for config in wanted:
        ruling = resolve_setting(setting_of_config(config), context)
        if isinstance(ruling, Illegal):
            raise InputError(
                f"trace: {PlannedTrace(config=config, left=(), done=0).words}: {ruling.message} ({ruling.rule})"
            )
    return tuple(wanted)


def plan_traces(
    traces: Path, configs: Iterable[EngineConfig], workload: Workload, prompts: int | None = None
) -> tuple[PlannedTrace, ...]:
    """What of these configurations is not traced yet, on the first `prompts` of the workload."""
    wanted = workload.prompts[:prompts]
    planned = []
    for config in configs:
        assert config.layout is not None
        assert config.triple is not None
        name = trace_folder_name(
            config.layout, config.tp_size, config.triple.eagle_topk, config.triple.num_steps, workload.workload_id
        )
        done = {prompt.prompt_id for prompt in read_prompts(traces / name)}
        left = tuple(prompt for prompt in wanted if prompt.prompt_id not in done)
        planned.append(PlannedTrace(config=config, left=left, done=len(wanted) - len(left)))
    return tuple(planned)


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
    run = _TraceRun(pool, stop, heartbeat, may_go_on, retries)
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
                keep_segments(traces, outcome.traced.facts, outcome.traced.segments)
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
        weight_loads=run.weight_loads,
        elapsed_s=time.monotonic() - started,
        stopped=not run.goes_on,
    )


def nothing_to_trace(plans: Sequence[PlannedTrace]) -> TraceRun:
    """What a run gives where everything is traced already."""
    done = tuple(FinishedTrace(plan=plan, prompts=plan.done, problems=(), failure=None) for plan in plans)
    return TraceRun(traces=done, weight_loads=0, elapsed_s=0.0, stopped=False)


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
        pool: Pool,
        stop: StopRequest,
        heartbeat: Callable[[], None],
        may_go_on: Callable[[], bool],
        retries: int,
    ) -> None:
        self._pool, self._stop, self._heartbeat = pool, stop, heartbeat
        self._may_go_on, self._retries = may_go_on, retries
        self.weight_loads = 0

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
            self.weight_loads += outcome.launch is None or outcome.launch.weights_loaded
            if outcome.failure is None or not outcome.failure.is_infrastructure or not self.goes_on:
                break
        return outcome

    def _once(self, job: TrialJob) -> TrialOutcome | None:
        while not self._pool.try_start(job):
            if self._stop.requested:
                return None
            self._pool.wait(WAIT_S)
            self._heartbeat()
        while not self._stop.requested:
            for outcome in self._pool.wait(WAIT_S):
                if outcome.trial_id == job.trial_id:
                    return outcome
            self._heartbeat()
        return None
