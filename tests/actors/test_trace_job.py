"""A trace as a job: the files come back in the outcome, also those of a trace that failed half-way."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.tracing_server import VOCABULARY, Traceable, text_of

from actors.job import TraceTask, TrialJob
from actors.load.workload import Workload, prompt_of
from actors.trace_job import can_trace, run_trace, tie_rule
from actors.trace_transfer import is_here
from actors.tracing import tracing_config
from results.surface import surface_of
from results.trace_segments import keep_segments
from results.traces import Trace
from search_spaces.config import EngineConfig, Triple

CONFIG = tracing_config(
    EngineConfig(layout=(2, 4, 5), triple=Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2), tp_size=1),
    num_steps=3,
    eagle_topk=2,
)
TEXTS = [f"prompt {i}" for i in range(9)]
TASK = TraceTask(
    workload_id="whole", concurrency=3, vocabulary=VOCABULARY, end_ids=frozenset(), max_bytes=10**7, expected={}
)


def job(texts: list[str], task: TraceTask = TASK, *, temperature: float = 0.0) -> TrialJob:
    load = Workload(
        prompts=tuple(prompt_of(text) for text in texts),
        warmup=(),
        concurrency=(1,),
        max_new_tokens=20,
        temperature=temperature,
        ignore_eos=True,
        stream=False,
        request_timeout_s=10.0,
        max_attempts=1,
    )
    return TrialJob(trial_id="trace-1", config=CONFIG, workload=load, trace=task)


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_files_come_back_and_are_the_trace(tmp_path: Path) -> None:
    with Traceable() as server:
        outcome = run_trace(server, job(TEXTS[:5]), TASK, "cpu", empty(tmp_path / "first"))  # type: ignore[arg-type]
        more = run_trace(server, job(TEXTS[3:]), TASK, "cpu", empty(tmp_path / "more"))  # type: ignore[arg-type]
    assert (outcome.failure, server.closed, outcome.cells) == (None, False, ())
    assert outcome.launch is not None
    assert outcome.launch.weights_loaded
    traced = pickle.loads(pickle.dumps(outcome)).traced
    assert traced.facts.workload_id == "whole"
    assert traced.facts.ties == "libstdcxx"
    # files, not bytes, travel
    assert len(pickle.dumps(outcome)) < traced.size_bytes / 2
    assert traced.size_bytes == sum(
        (traced.folder / name).stat().st_size for s in traced.segments for name, _ in s.files
    )
    assert is_here(traced)
    folder = keep_segments(tmp_path / "study", traced)
    assert more.traced is not None
    assert keep_segments(tmp_path / "study", more.traced) == folder
    trace = Trace(folder)
    # two of the second job's prompts were there already
    assert sorted(p.prompt_id for p in trace.prompts) == sorted(prompt_of(t).prompt_id for t in TEXTS)
    for prompt in trace.prompts:
        text = next(t for t in TEXTS if prompt_of(t).prompt_id == prompt.prompt_id)
        assert list(prompt.output_ids) == text_of(text, 23)
    point = surface_of(trace, [Triple(num_steps=3, eagle_topk=2, num_draft_tokens=6)])[0]
    assert sum(point.tokens_by_prompt) == 9 * 20


def test_what_was_finished_before_a_death_is_kept(tmp_path: Path) -> None:
    """Batches of 64 prompts are one segment each: 64 are whole when the server dies among the rest."""
    texts = [f"prompt {i}" for i in range(80)]
    with Traceable(dies_after=70) as server:
        known = {prompt_of(text).prompt_id: tuple(text_of(text, 23)) for text in texts[:64]}
        outcome = run_trace(server, job(texts), replace(TASK, expected=known), "cuda", tmp_path)  # type: ignore[arg-type]
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.log_tail) == ("crash", "the log")
    assert server.closed
    assert outcome.traced is not None
    assert outcome.traced.facts.ties == "lowest_index" == tie_rule("cuda")
    finished = [prompt.prompt_id for segment in outcome.traced.segments for prompt in segment.prompts]
    assert sorted(finished) == sorted(known)


def test_what_cannot_be_traced_is_a_failure(tmp_path: Path) -> None:
    with Traceable() as server:
        outcome = run_trace(server, job(TEXTS, temperature=0.7), TASK, "cpu", tmp_path)  # type: ignore[arg-type]
    assert outcome.failure is not None
    assert outcome.failure.kind == "bad_config"
    assert outcome.failure.message == "workload.temperature: a trace needs 0, not 0.7"
    assert (server.requests, outcome.traced) == (0, None)


@pytest.mark.parametrize(
    "writer", ["actors.tracing.write_facts", "actors.tracing.append_prompts", "actors.trace_job.signed"]
)
def test_a_full_disk_where_the_trace_is_kept_is_the_machines_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, full)
    with Traceable() as server:
        outcome = run_trace(server, job(TEXTS[:2]), TASK, "cpu", tmp_path)  # type: ignore[arg-type]
    assert outcome.failure is not None
    assert (outcome.failure.phase, outcome.failure.kind) == ("measure", "machine")
    assert outcome.failure.message == "the trace cannot be kept: [Errno 28] No space left on device"
    assert (server.closed, outcome.traced) == (True, None)


def test_who_can_be_traced() -> None:
    assert can_trace(Traceable())  # type: ignore[arg-type]
    assert not can_trace(None)
