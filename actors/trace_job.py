"""One trace job on one engine: the job's prompts are traced into a folder of this node, which the outcome names."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from actors.engines.engine import Engine
from actors.job import TraceTask, TrialJob, TrialOutcome
from actors.outcomes import end_job
from actors.placement import Device
from actors.trace_transfer import signed
from actors.tracing import TraceOutcome, TraceRequest, TracingEngine, trace_workload
from results.failures import Failure
from results.topk_ties import TieRule
from results.trace_segments import TracedFiles, find_segments
from search_spaces.errors import InputError


class TraceableEngine(Engine, TracingEngine, Protocol):
    """An engine that can be traced and serve ordinary trials afterwards; `SwitchingServer` is one."""


def can_trace(engine: Engine | None) -> bool:
    """Whether an engine can be traced. `isinstance` would read `base_url`, which raises while no server runs."""
    return hasattr(type(engine), "trace")


def tie_rule(device: Device) -> TieRule:
    """How `torch.topk` on this device chooses among equal candidates."""
    return "lowest_index" if device == "cuda" else "libstdcxx"


def run_trace(engine: TraceableEngine, job: TrialJob, task: TraceTask, device: Device, folder: Path) -> TrialOutcome:
    """Trace the job's prompts in the job's configuration into `folder`, which is empty and which the caller keeps until
    the files are fetched; `traced` of the outcome names what came out whole.

    Blocks. What was finished before a failure is kept. After a failure the engine is closed; after a success it is left
    tracing, which the next `apply` ends.
    """
    started_at_unix_s = time.time()
    launch, failure, traced = None, None, None
    try:
        request = TraceRequest(
            config=job.config,
            workload=job.workload,
            concurrency=task.concurrency,
            ties=tie_rule(device),
            vocabulary=task.vocabulary,
            end_ids=task.end_ids,
            expected=task.expected,
            max_bytes=task.max_bytes,
        )
    except (InputError, ValueError) as problem:
        failure = Failure(phase="launch", kind="bad_config", message=" ".join(str(problem).split()))
    else:
        try:
            outcome: TraceOutcome | Failure = trace_workload(engine, request, folder)
        except (InputError, OSError) as problem:  # the folder is empty and ours: only its disk can be to blame
            outcome = _of_the_disk(problem)
        try:
            traced = _signed_files(request, task, folder, outcome)
        except (InputError, OSError) as problem:
            outcome = outcome if isinstance(outcome, Failure) else _of_the_disk(problem)
        if isinstance(outcome, Failure):
            failure = outcome
        else:
            launch = outcome.launch
    return end_job(engine, job, started_at_unix_s, launch=launch, failure=failure, traced=traced)


def _signed_files(
    request: TraceRequest, task: TraceTask, folder: Path, outcome: TraceOutcome | Failure
) -> TracedFiles | None:
    """What came out whole; None after a failure that left nothing."""
    made = folder / request.facts.folder_name
    found = TracedFiles(
        facts=replace(request.facts, workload_id=task.workload_id),
        folder=made,
        segments=find_segments(made),
        problems=() if isinstance(outcome, Failure) else outcome.problems,
        untraceable={} if isinstance(outcome, Failure) else outcome.untraceable,
    )
    return None if isinstance(outcome, Failure) and not found.segments else signed(found)


def _of_the_disk(problem: Exception) -> Failure:
    message = " ".join(f"the trace cannot be kept: {problem}".split())
    return Failure(phase="measure", kind="machine", message=message)
