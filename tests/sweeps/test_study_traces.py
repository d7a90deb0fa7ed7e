"""Traces of a study: what is chosen, job by job on one server, resumed by prompt, failures that do not end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
from doubles.tracing_server import VOCABULARY, text_of
from search_doubles import fail
from trial_builders import WORKLOAD, launch

from actors.job import TrialJob, TrialOutcome
from actors.load.workload import prompt_of
from results.failures import Failure
from results.trace_launches import read_trace_launches
from results.trace_segments import TracedFiles, TracedSegment
from results.traces import UNTRACEABLE_FILE, TracedPrompt, TraceFacts, find_traces, read_prompts, read_untraceable
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import EnvironmentProblem, InputError
from search_spaces.model_facts import DraftFacts, TargetFacts
from search_spaces.rulings import RuleContext
from sweeps.interrupts import StopRequest
from sweeps.trace_attempts import MayBegin
from sweeps.trace_choice import TraceChoice, trace_configs
from sweeps.trace_plans import plan_traces
from sweeps.tracing import JOB_BYTES, TraceRun, nothing_to_trace, run_traces

TEXTS = [f"prompt {i}" for i in range(40)]
LOAD = replace(WORKLOAD, prompts=tuple(prompt_of(text) for text in TEXTS), concurrency=(1, 4), stream=False)


def context() -> RuleContext:
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    return RuleContext(
        target=TargetFacts(
            path=Path("target"),
            architecture="LlamaForCausalLM",
            model_type="llama",
            num_layers=32,
            hidden_size=4096,
            vocab_size=VOCABULARY,
            config=heads,
        ),
        draft=DraftFacts(
            path=Path("draft"),
            architecture="LlamaForCausalLMEagle3",
            hidden_size=4096,
            aux_ids=None,
            tensors={},
            weights_unread=None,
            config=heads,
        ),
        sglang_version="0.5.23",
        args={},
    )


def server(layout: tuple[int, ...], steps: int, topk: int, tokens: int, tp_size: int = 1) -> EngineConfig:
    triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    return EngineConfig(layout=layout, triple=triple, tp_size=tp_size)


CONFIGS = [
    EngineConfig(layout=None, triple=None, tp_size=1),
    server((2, 16, 29), 1, 1, 2, 2),
    server((2, 16, 29), 5, 1, 6),
    server((2, 16, 29), 3, 1, 4),
    server((2, 16, 29), 2, 4, 8),
    server((0, 3, 7), 3, 4, 16),
    server((0, 3, 7), 1, 1, 2),
]


def wanted(choice: TraceChoice) -> list[tuple[tuple[int, ...] | None, int, Triple | None]]:
    return [(c.layout, c.tp_size, c.triple) for c in trace_configs(CONFIGS, context(), choice)]


def test_every_layout_and_topk_at_its_greatest_steps_on_the_smallest_tp() -> None:
    assert wanted(TraceChoice()) == [
        ((2, 16, 29), 1, Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)),
        ((2, 16, 29), 1, Triple(num_steps=2, eagle_topk=4, num_draft_tokens=3)),
        ((0, 3, 7), 1, Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)),
        ((0, 3, 7), 1, Triple(num_steps=3, eagle_topk=4, num_draft_tokens=4)),
    ]
    chosen = TraceChoice(layouts=((1, 2, 3),), topks=(8,), num_steps=4, tp_size=2)
    assert wanted(chosen) == [((1, 2, 3), 2, Triple(num_steps=4, eagle_topk=8, num_draft_tokens=5))]
    with pytest.raises(InputError, match=r"--tp: 4 is not in the space \(legal: 1, 2\)"):
        trace_configs(CONFIGS, context(), TraceChoice(tp_size=4))
    with pytest.raises(InputError, match="space: has no speculative setting to trace"):
        trace_configs(CONFIGS[:1], context(), TraceChoice())


class TracingPool:
    """Answers trace jobs one at a time; the first one loads weights, and the one after a failure."""

    def __init__(self, answer: Callable[[TrialJob], TrialOutcome | None] = lambda job: None) -> None:
        self._answer = answer
        self.jobs: list[TrialJob] = []
        self._running: list[TrialJob] = []
        self._has_server = False
        self._made = TemporaryDirectory()

    def has_room(self) -> bool:
        return not self._running

    def try_start(self, job: TrialJob) -> bool:
        assert not self._running, "one server is enough"
        self.jobs.append(job)
        self._running.append(job)
        return True

    def wait(self, timeout_s: float) -> Sequence[TrialOutcome]:
        job = self._running.pop()
        outcome = self._answer(job) or self._traced(job)
        self._has_server = outcome.failure is None
        return [outcome]

    def _traced(self, job: TrialJob) -> TrialOutcome:
        folder = Path(mkdtemp(dir=self._made.name))
        return traced(job, folder, first=len(self.jobs) == 1, loads=not self._has_server)


def traced(job: TrialJob, folder: Path, *, first: bool = False, loads: bool = False) -> TrialOutcome:
    assert job.trace is not None
    assert job.config.triple is not None
    assert job.config.layout is not None
    prompts = tuple(
        TracedPrompt(
            prompt_id=prompt.prompt_id,
            request_id=prompt.prompt_id,
            segment="0001.pools",
            prompt_tokens=3,
            length=8,
            output_ids=tuple(text_of(prompt.text, 8)),
        )
        for prompt in job.workload.prompts
    )
    facts = TraceFacts(
        layout=job.config.layout,
        tp_size=job.config.tp_size,
        eagle_topk=job.config.triple.eagle_topk,
        num_steps=job.config.triple.num_steps,
        workload_id=job.trace.workload_id,
        ties="libstdcxx",
    )
    (folder / "0001.pools").write_bytes(b"pools")
    (folder / "0001.pools.requests").write_bytes(b"")
    segment = TracedSegment(name="0001.pools", pools_bytes=5, index_bytes=0, prompts=prompts)
    problems = ("a problem",) if first else ()
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=0.0,
        finished_at_unix_s=1.0,
        launch=replace(launch(), weights_loaded=loads),
        cells=(),
        failure=None,
        server_log="log",
        traced=TracedFiles(facts=facts, folder=folder, segments=(segment,), problems=problems),
    )


def run(
    pool: TracingPool,
    folder: Path,
    *,
    stop: StopRequest | None = None,
    retries: int = 0,
    may_begin: MayBegin = lambda launched, starts: True,
) -> TraceRun:
    plans = plan_traces(folder, trace_configs(CONFIGS, context(), TraceChoice()), LOAD)
    return run_traces(
        plans,
        pool=pool,
        traces=folder,
        workload=LOAD,
        target=context().target,
        expected={LOAD.prompts[0].prompt_id: (1, 2)},
        stop=stop or StopRequest(),
        retries=retries,
        may_begin=may_begin,
    )


def test_one_server_traces_all_of_it_in_jobs(tmp_path: Path) -> None:
    pool = TracingPool()
    found = run(pool, tmp_path)
    assert [len(job.workload.prompts) for job in pool.jobs] == [32, 8] * 4
    assert [trace.prompts for trace in found.traces] == [40] * 4
    assert (found.weight_loads, found.stopped, found.failures) == (1, False, ())
    assert found.traces[0].problems == ("a problem",)
    task = pool.jobs[0].trace
    assert task is not None
    assert (task.concurrency, task.workload_id, task.vocabulary) == (4, LOAD.workload_id, VOCABULARY)
    assert task.expected == {LOAD.prompts[0].prompt_id: (1, 2)}
    assert {trace.facts.workload_id for trace in find_traces(tmp_path)} == {LOAD.workload_id}
    again = TracingPool()
    assert [trace.prompts for trace in run(again, tmp_path).traces] == [40] * 4
    assert again.jobs == []


def test_long_answers_have_small_jobs(tmp_path: Path) -> None:
    """At topk 8 and 8 steps a position takes 3.9 kB: twelve answers of 512 tokens fit into a job twice."""
    load = replace(LOAD, max_new_tokens=512)
    config = server((0, 3, 7), 8, 8, 9)
    pool = TracingPool()
    plans = plan_traces(tmp_path, [config], load)
    kept: dict[str, Any] = {"pool": pool, "traces": tmp_path, "target": context().target, "expected": {}}
    run_traces(plans, workload=load, stop=StopRequest(), **kept)
    sizes = [len(job.workload.prompts) for job in pool.jobs]
    assert sizes == [12, 12, 12, 4]
    assert {job.trace.max_bytes for job in pool.jobs if job.trace is not None} == {JOB_BYTES}
    huge = replace(LOAD, max_new_tokens=16_000, prompts=LOAD.prompts[:2])
    pool.jobs.clear()
    run_traces(plan_traces(tmp_path, [config], huge), workload=huge, stop=StopRequest(), **kept)
    assert [len(job.workload.prompts) for job in pool.jobs] == [1, 1]
    assert all(job.trace is not None and job.trace.max_bytes > 3 * 16_000 * 3884 for job in pool.jobs)


def test_a_failed_trace_keeps_what_it_had_and_the_others_go_on(tmp_path: Path) -> None:
    crash = Failure(phase="measure", kind="crash", message="the server died", log_tail="why")
    broken = TracingPool(lambda job: fail(job, crash) if len(broken.jobs) == 2 else None)
    found = run(broken, tmp_path)
    assert [trace.prompts for trace in found.traces] == [32, 40, 40, 40]
    (failed,) = found.failures
    assert failed.to_json()["failure"] == {
        "phase": "measure", "kind": "crash", "message": "the server died", "log_tail": "why",
    }  # fmt: skip
    assert found.weight_loads == 2
    again = TracingPool()
    assert [trace.prompts for trace in run(again, tmp_path).traces] == [40] * 4
    assert [len(job.workload.prompts) for job in again.jobs] == [8]


def test_servers_that_cannot_trace_are_tried_twice(tmp_path: Path) -> None:
    refused = Failure(phase="launch", kind="mismatch", message="cannot trace: no rank answered")
    pool = TracingPool(lambda job: fail(job, refused))
    found = run(pool, tmp_path)
    assert len(pool.jobs) == 2
    untried = replace(refused, message="not tried: 2 failures in a row before it")
    assert [trace.failure for trace in found.traces] == [refused, refused, untried, untried]
    assert [trace.prompts for trace in found.traces] == [0] * 4
    assert not found.stopped


def test_infrastructure_is_retried(tmp_path: Path) -> None:
    lost = Failure(phase="measure", kind="lost_actor", message="gone")
    pool = TracingPool(lambda job: fail(job, lost) if job.trial_id.endswith("-a1") else None)
    found = run(pool, tmp_path, retries=1)
    assert found.failures == ()
    assert len(pool.jobs) == 16


def half_traced(job: TrialJob, folder: Path) -> TrialOutcome:
    """The server was silent after half of the prompts."""
    half = job.workload.prompts[: len(job.workload.prompts) // 2]
    outcome = traced(replace(job, workload=replace(job.workload, prompts=half)), folder, loads=True)
    return replace(outcome, launch=None, failure=Failure(phase="measure", kind="timeout", message="no answer"))


@pytest.mark.parametrize("cut_off", ["", "budget", "signal", "signal while it runs"])
def test_what_an_attempt_traced_is_kept_and_not_traced_again(tmp_path: Path, cut_off: str) -> None:
    stop, made = StopRequest(), tmp_path / "made"

    def answer(job: TrialJob) -> TrialOutcome | None:
        if len(pool.jobs) > 1:
            return None
        made.mkdir()
        stop.by = "SIGINT" if cut_off == "signal" else None
        return half_traced(job, made)

    pool = TracingPool(answer)
    begun = pool.try_start

    def renew(job: TrialJob) -> bool:
        if made.exists():  # as a group does with the last job's files
            rmtree(made)
            stop.by = "SIGINT" if cut_off == "signal while it runs" else None
        return begun(job)

    pool.try_start = renew  # type: ignore[method-assign]
    may_begin: MayBegin = lambda launched, starts: cut_off != "budget" or launched < 1  # noqa: E731
    found = run(pool, tmp_path / "traces", retries=1, stop=stop, may_begin=may_begin)
    if cut_off:
        assert (found.stopped, len(pool.jobs)) == (True, 2 if cut_off == "signal while it runs" else 1)
        assert [(trace.prompts, trace.failure and trace.failure.kind) for trace in found.traces] == [
            (16, "timeout"), *[(0, None)] * 3,
        ]  # fmt: skip
        assert [len(trace.prompts) for trace in find_traces(tmp_path / "traces")] == [16]
    else:
        assert [trace.prompts for trace in found.traces] == [40] * 4
        assert [len(job.workload.prompts) for job in pool.jobs][:3] == [32, 16, 8]
        assert found.failures == ()


def nothing_traced(job: TrialJob) -> TrialOutcome:
    """Every prompt was refused, which is no failure of the server."""
    with TemporaryDirectory() as folder:
        outcome = traced(job, Path(folder))
    assert outcome.traced is not None
    reasons = {prompt.prompt_id: "not traced: HTTP 400" for prompt in job.workload.prompts}
    problems = tuple(f"prompt {name}: {reason}" for name, reason in reasons.items())
    return replace(outcome, traced=replace(outcome.traced, segments=(), problems=problems, untraceable=reasons))


def test_a_job_without_a_traced_prompt_does_not_end_its_trace(tmp_path: Path) -> None:
    """The longest prompts may be the last ones: eight of forty are missing of the first trace, as problems."""
    pool = TracingPool(lambda job: nothing_traced(job) if len(pool.jobs) == 2 else None)
    found = run(pool, tmp_path)
    assert [trace.prompts for trace in found.traces] == [32, 40, 40, 40]
    assert (found.failures, len(found.traces[0].problems)) == ((), 9)
    # why is kept: no later driver starts a server for them
    again = TracingPool(nothing_traced)
    left = run(again, tmp_path)
    assert [(trace.prompts, trace.failure) for trace in left.traces] == [(32, None)] + [(40, None)] * 3
    assert left.traces[0].problems == found.traces[0].problems[1:]
    assert (again.jobs, left.stopped) == ([], False)
    assert nothing_to_trace([trace.plan for trace in left.traces]).traces == left.traces
    assert left.traces[0].plan.to_json() | {"prompts_left": 0, "prompts_done": 32, "prompts_untraceable": 8} == (
        left.traces[0].plan.to_json()
    )
    # a trace of a version that did not note them
    (note,) = tmp_path.glob(f"*/{UNTRACEABLE_FILE}")
    note.unlink()
    plans = plan_traces(tmp_path, trace_configs(CONFIGS, context(), TraceChoice()), LOAD)
    assert [len(plan.left) for plan in plans] == [8, 0, 0, 0]


def test_the_first_prompts_are_noted_once_others_are_traced(tmp_path: Path) -> None:
    pool = TracingPool(lambda job: nothing_traced(job) if len(pool.jobs) == 1 else None)
    assert [trace.prompts for trace in run(pool, tmp_path).traces] == [8, 40, 40, 40]
    again = TracingPool()
    assert [trace.prompts for trace in run(again, tmp_path).traces] == [8, 40, 40, 40]
    assert again.jobs == []


def test_a_damaged_note_of_what_cannot_be_traced_is_named(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"a": 1}'):
        (tmp_path / UNTRACEABLE_FILE).write_text(text)
        with pytest.raises(InputError, match=f"{UNTRACEABLE_FILE}: damaged: "):
            read_untraceable(tmp_path)


def test_traces_of_which_no_prompt_can_be_traced_have_failed(tmp_path: Path) -> None:
    pool = TracingPool(nothing_traced)
    found = run(pool, tmp_path)
    assert len(pool.jobs) == 2 * 2
    first = f"no prompt could be traced; prompt {LOAD.prompts[0].prompt_id}: not traced: HTTP 400"
    assert [trace.failure.message for trace in found.failures if trace.failure is not None] == [
        first, first, *["not tried: 2 failures in a row before it"] * 2,
    ]  # fmt: skip
    assert find_traces(tmp_path) == ()


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_retries_are_launches_of_the_budget(tmp_path: Path, launches: int) -> None:
    """A server that dies in every job: none is started beyond the budget, and the next driver may go on."""
    lost = Failure(phase="measure", kind="lost_actor", message="gone")
    pool = TracingPool(lambda job: fail(job, lost))
    found = run(pool, tmp_path, retries=9, may_begin=lambda launched, starts: not starts or launched < launches)
    assert len(pool.jobs) == found.weight_loads == launches
    assert found.stopped


def test_one_launch_is_enough_for_all_traces(tmp_path: Path) -> None:
    pool = TracingPool()
    found = run(pool, tmp_path, may_begin=lambda launched, starts: not starts or launched < 1)
    assert [trace.prompts for trace in found.traces] == [40] * 4
    assert (found.weight_loads, found.stopped) == (1, False)


@pytest.mark.parametrize(("launches", "traced_whole"), [(1, 2), (3, 3), (9, 4)])
def test_servers_that_lack_room_for_the_others_are_launches_of_the_budget(
    tmp_path: Path, launches: int, traced_whole: int
) -> None:
    """Each trace needs a server of its own. Only the first such surprise can go beyond the budget."""

    def each_its_own(job: TrialJob) -> TrialOutcome:
        folder = Path(mkdtemp(dir=tmp_path))
        return traced(job, folder, loads=job.workload.prompts[0] == LOAD.prompts[0])

    pool = TracingPool(each_its_own)
    found = run(pool, tmp_path / "traces", may_begin=lambda launched, starts: not starts or launched < launches)
    assert [trace.prompts for trace in found.traces] == [40] * traced_whole + [0] * (4 - traced_whole)
    assert found.weight_loads == max(2, min(launches, 4))
    assert found.stopped is (traced_whole < 4)


def test_a_machine_that_is_to_be_mended_ends_the_run(tmp_path: Path) -> None:
    """A full disk: tried again, and met by the next trace as well. What was traced before stays."""
    full = Failure(phase="measure", kind="machine", message="No space left on device")
    pool = TracingPool(lambda job: fail(job, full) if len(pool.jobs) > 1 else None)
    words = "trace of layout 2,16,29, tp 1, topk 4, 2 steps: No space left on device"
    with pytest.raises(EnvironmentProblem, match=words + r" \(3 launches in a row failed because of the machine\)"):
        run(pool, tmp_path, retries=1)
    assert len(pool.jobs) == 1 + 3
    assert [len(trace.prompts) for trace in find_traces(tmp_path)] == [32]
    assert [job.ended for job in read_trace_launches(tmp_path).jobs] == [True] * 4


def test_a_machine_that_fails_now_and_then_ends_nothing(tmp_path: Path) -> None:
    """Unlike servers that cannot trace: with two such failures in a row the others are still tried."""
    full = Failure(phase="measure", kind="machine", message="No space left on device")
    pool = TracingPool(lambda job: fail(job, full) if len(pool.jobs) <= 2 else None)
    found = run(pool, tmp_path)
    assert [(trace.prompts, trace.failure) for trace in found.traces] == [(0, full), (0, full), (40, None), (40, None)]


def test_what_every_trace_would_meet_ends_the_run(tmp_path: Path) -> None:
    missing = Failure(phase="launch", kind="no_engine", message="SGLang is missing")
    pool = TracingPool(lambda job: fail(job, missing))
    with pytest.raises(EnvironmentProblem, match="SGLang is missing"):
        run(pool, tmp_path, retries=3)
    assert len(pool.jobs) == 1


def test_told_to_stop(tmp_path: Path) -> None:
    stop = StopRequest()

    def answer(job: TrialJob) -> None:
        stop.by = "SIGINT" if len(pool.jobs) == 3 else None

    pool = TracingPool(answer)
    found = run(pool, tmp_path, stop=stop)
    assert found.stopped
    assert len(pool.jobs) == 3
    kept = {trace.path: len(read_prompts(trace.path)) for trace in find_traces(tmp_path)}
    assert sorted(kept.values()) == [32, 40]
    jobs = read_trace_launches(tmp_path).jobs
    assert [(job.weights_loaded, job.ended) for job in jobs] == [(True, True), (False, True), (False, True)]


def test_a_job_that_is_cut_off_still_counts(tmp_path: Path) -> None:
    """Told to stop in the middle of a job, or dead: the server was started, whatever came of it."""
    stop = StopRequest()
    pool = TracingPool()
    begun = pool.try_start

    def stop_while_it_runs(job: TrialJob) -> bool:
        stop.by = "SIGINT"
        return begun(job)

    pool.try_start = stop_while_it_runs  # type: ignore[method-assign]
    found = run(pool, tmp_path, stop=stop)
    assert (found.weight_loads, found.stopped, found.traces[0].prompts) == (1, True, 0)
    again = run(TracingPool(), tmp_path)
    assert again.weight_loads == 1
    assert read_trace_launches(tmp_path).weight_loads == 2


def test_a_job_that_gets_no_server_does_not_count(tmp_path: Path) -> None:
    stop = StopRequest()
    pool = TracingPool()

    def never(job: TrialJob) -> bool:
        stop.by = "SIGINT"
        return False

    pool.try_start = never  # type: ignore[method-assign]
    assert run(pool, tmp_path, stop=stop).weight_loads == 0
    assert read_trace_launches(tmp_path).jobs == ()
