"""Isolations in a study's folder: the study, its trials, and a pool that answers probes and traces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np
import pytest
from doubles.tracing_server import Traceable
from search_doubles import Events, InstantPool, succeed
from spec_files import write_spec
from trial_builders import WORKLOAD

from actors.job import TrialJob, TrialOutcome
from actors.trace_job import run_trace
from results.feed import FeedCapture
from search_spaces.config import EngineConfig, Triple
from sweeps import study_isolation
from sweeps.claiming import save_spec
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest
from sweeps.isolation_ends import setting_of_config
from sweeps.isolation_plan import IsolationPlan
from sweeps.recording import record_of, write_record
from sweeps.spec import load_spec
from sweeps.study_isolation import IsolationRequest, StudyIsolation
from sweeps.tasks import Task

SPEC = """\
target: models/target
draft: models/draft
engine: {device: cpu}
tracking: {enabled: false}
workload: {concurrency: [1]}
space:
  layout: [[0, 3, 7], default]
  num_steps: [1, 3]
  eagle_topk: [1]
  num_draft_tokens: [4]
  tp_size: [1, 2]
suspect: {layout: default, num_steps: 1, eagle_topk: 1, num_draft_tokens: 8, tp_size: 2}
"""


def server(layout: tuple[int, ...] = (0, 3, 7), steps: int = 3, tp: int = 2) -> EngineConfig:
    triple = Triple(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)
    return EngineConfig(layout=layout, triple=triple, tp_size=tp)


SUSPECT = server((2, 16, 29), 1)


@dataclass
class ProbingPool(InstantPool):
    """Also answers probes: every rank is fed the server's layout, from taps that differ."""

    probed: list[EngineConfig] = field(default_factory=list)
    traces: TemporaryDirectory[str] = field(default_factory=TemporaryDirectory)

    def wait(self, timeout_s: float) -> list[TrialOutcome]:
        job = self.running[-1] if self.running else None
        if job is not None and job.trace is not None:
            self.running.pop()
            with Traceable() as server:
                folder = Path(mkdtemp(dir=self.traces.name))
                return [run_trace(server, job, job.trace, "cpu", folder)]  # type: ignore[arg-type]
        if job is None or job.probe_tokens is None:
            return list(super().wait(timeout_s))
        self.running.pop()
        self.probed.append(job.config)
        taps = np.random.default_rng(0).normal(size=(32, 8, 4)).astype(np.float32)
        fed = np.concatenate([taps[tap] for tap in job.config.layout or ()], axis=1)
        feeds = tuple(
            FeedCapture(rank=rank, fed=fed, taps=taps if rank == 0 else taps[:, :0], input_ids=np.arange(8))
            for rank in range(job.config.tp_size)
        )
        return [replace(succeed(job), cells=(), feeds=feeds)]


def study_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyPlace:
    """The study of SPEC without trials; a file of tests makes it its fixture `place`."""
    monkeypatch.setattr(
        study_isolation, "make_workload", lambda spec: replace(WORKLOAD, temperature=0.7, concurrency=(1, 4))
    )
    spec = load_spec(write_spec(tmp_path, SPEC))
    made = StudyPlace(home=tmp_path / "home", folder=tmp_path / "home" / "case")
    save_spec(made, spec)
    made.records.open_for_write()
    return made


def measure(place: StudyPlace, config: EngineConfig, name: str, stopped: str | None = None) -> None:
    outcome = succeed(TrialJob(trial_id=f"{name}-a1", config=config, workload=WORKLOAD))
    if stopped is not None:
        seen = replace(outcome.cells[0], rows=outcome.cells[0].rows[:1], stopped=stopped, prompts=2)
        outcome = replace(outcome, cells=(seen,))
    write_record(place.records, record_of("case", task_of(config, name), outcome), outcome)


def task_of(config: EngineConfig, name: str) -> Task:
    return Task(
        base=name,
        role="search",
        setting=setting_of_config(config),
        config=config,
        trial=None,
        attempt=1,
        first_attempt=1,
        retry_of=None,
    )


def isolation(place: StudyPlace, **options: object) -> StudyIsolation:
    return StudyIsolation(place.read_spec(), place, IsolationRequest(**options))  # type: ignore[arg-type]


def run(found: StudyIsolation, pool: InstantPool, stop: StopRequest | None = None) -> IsolationPlan | None:
    return found.run(found.plan(), pool, Events(), stop or StopRequest())
