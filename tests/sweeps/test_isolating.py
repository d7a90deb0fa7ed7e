"""An isolation in a study's folder: ends chosen, corners run once and resumed, probes kept, verdicts reported."""

from __future__ import annotations

import contextlib
import io
import json
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np
import pytest
from doubles.tracing_server import Traceable
from search_doubles import Events, InstantPool, fail, succeed
from spec_files import write_spec
from trial_builders import WORKLOAD, cell, row

from actors.job import TrialJob, TrialOutcome
from actors.trace_job import run_trace
from results.failures import Failure
from results.feed import FeedCapture
from results.isolation_report import kept_sentences
from results.objective import Objective
from results.probed_feed import TrainedOn
from results.ranking import rank
from results.records import TrialRecord
from results.study_surface import traces_path
from results.trace_launches import read_trace_launches
from results.traces import TracedPrompt, TraceFacts, append_prompts, write_facts
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import InputError
from sweeps import compose, isolating
from sweeps.account import Account
from sweeps.budget import Budget
from sweeps.cli import main
from sweeps.home import StudyPlace, save_spec
from sweeps.interrupts import StopRequest
from sweeps.isolating import IsolationRequest, StudyIsolation, isolate_after_sweep
from sweeps.isolation_ends import choose_ends, setting_of_config, trained_on
from sweeps.isolation_plan import IsolationPlan
from sweeps.isolation_view import plan_json, show_plan
from sweeps.planning import make_plan
from sweeps.recording import record_of, write_record
from sweeps.report_view import print_report, print_verdicts
from sweeps.spec import load_spec, parse_spec
from sweeps.study_status import report_of
from sweeps.tally import ELAPSED
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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyPlace:
    monkeypatch.setattr(isolating, "make_workload", lambda spec: replace(WORKLOAD, temperature=0.7, concurrency=(1, 4)))
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


def test_only_what_is_missing_is_run_once_and_the_verdicts_are_kept(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    found = isolation(place)
    plan = found.plan()
    # both ends are at tp 2, so the reference is held at tp 1, where nothing is split
    assert (plan.ends.suspect, plan.ends.reference, plan.ends.chosen) == (SUSPECT, server(tp=1), server())
    assert [item.state for item in plan.corners].count("measured") == 2
    assert len(plan.corners) == 8
    pool = ProbingPool()
    done = run(found, pool)
    assert done is not None
    launched = [job.config for job in pool.launched if job.probe_tokens is None]
    assert len(launched) == len(set(launched)) == 6
    assert [config.tp_size for config in launched] == [1, 1, 1, 1, 2, 2]
    job = pool.launched[0]
    assert (job.workload.temperature, job.workload.concurrency) == (0.0, (1,))
    assert pool.probed == [SUSPECT, replace(SUSPECT, tp_size=1)]
    isolated = found.conclude(done)
    assert {r.role for r in place.records.records()} == {"search", "corner"}
    assert all(corner.pairs for corner in isolated.case.corners.values())
    assert [feed.report is not None and feed.report.layout for feed in isolated.case.feeds] == [(2, 16, 29)] * 2
    kept = json.loads((place.folder / "isolate.json").read_text())
    assert [row["verdict"] for row in kept["verdicts"]] == ["no", "no", "no"]
    # a second look needs no server: corners and probes are kept
    again = isolation(place).plan()
    assert not again.needs_servers
    assert [feed.sentence() for feed in again.feeds] == [feed.sentence() for feed in isolated.case.feeds]
    report = report_of(place)
    assert report.verdicts == kept_sentences(place.records) == tuple(kept["sentences"])
    assert "specsweep isolate" not in report.next_step
    shown = io.StringIO()
    print_report(report, shown)
    assert "No cause found" not in shown.getvalue()
    print_verdicts(report, shown)
    assert shown.getvalue().partition("\nVerdict:\n")[2].replace("\n", " ").strip() == " ".join(kept["sentences"])


def test_stopped_in_the_middle_it_goes_on_with_the_rest(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    stop = StopRequest()

    def stopping(job: TrialJob) -> TrialOutcome:
        if len(pool.launched) == 3:
            stop.by = "SIGINT"
        return succeed(job)

    pool = ProbingPool(run=stopping)
    assert run(isolation(place), pool, stop) is None
    before = {r.trial_id for r in place.records.records()}
    assert len(before) == 2 + 3
    later = ProbingPool()
    assert run(isolation(place), later) is not None
    assert len([job for job in later.launched if job.probe_tokens is None]) == 3
    assert before < {r.trial_id for r in place.records.records()}


def test_a_corner_that_dies_of_its_setting_is_not_launched_again(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")

    def dying(job: TrialJob) -> TrialOutcome:
        if job.config.tp_size == 1:
            return fail(job, Failure(phase="launch", kind="oom", message="CUDA out of memory"))
        return succeed(job)

    found = isolation(place, probe=False)
    done = run(found, ProbingPool(run=dying))
    assert done is not None
    assert [item.state for item in done.corners].count("failed") == 4
    explanation = found.conclude(done).explanation
    parallelism = explanation.cause("parallelism")
    assert parallelism.verdict == "undecided"
    assert "CUDA out of memory" in parallelism.evidence
    # the other two are split at tp 2 all the same
    assert explanation.cause("layout").share is not None
    assert not isolation(place, probe=False).plan().needs_servers


def test_a_trial_that_ended_early_is_measured_in_full_where_that_can_be_had(place: StudyPlace) -> None:
    """A search dismisses slow settings after a few prompts, and those are the corners with the bad layout."""
    early = "dominated after 1 prompts"
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    measure(place, server((2, 16, 29), 3), "t0002", stopped=early)
    found = isolation(place, probe=False)
    plan = found.plan()
    (cut,) = [item for item in plan.corners if item.measured.stopped]
    assert (cut.state, cut.measured.config, len(cut.measured.pairs)) == ("to run", server((2, 16, 29), 3), 1)
    assert "t0002-a1 (dominated after 1 prompts)" in show_plan(plan)
    pool = ProbingPool()
    done = run(found, pool)
    assert done is not None
    assert server((2, 16, 29), 3) in [job.config for job in pool.launched]
    attribution = found.conclude(done).attribution
    assert attribution is not None
    assert attribution.prompts == 2
    assert not isolation(place, probe=False).plan().needs_servers


@pytest.mark.parametrize("kind", ["oom", "not counted"])
def test_a_trial_that_ended_early_counts_where_nothing_better_can_be_had(place: StudyPlace, kind: str) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    measure(place, server((2, 16, 29), 3), "t0002", stopped="dominated after 1 prompts")

    def failing(job: TrialJob) -> TrialOutcome:
        if job.config != server((2, 16, 29), 3):
            return succeed(job)
        if kind == "oom":
            return fail(job, Failure(phase="launch", kind="oom", message="CUDA out of memory"))
        outcome = succeed(job)
        warm = tuple(replace(row, cached_tokens=row.prompt_tokens) for row in outcome.cells[0].rows)
        return replace(outcome, cells=(replace(outcome.cells[0], rows=warm),))

    # whoever may launch nothing concludes on what there is
    before = isolation(place, probe=False)
    assert [len(c.pairs) for c in before.conclude(before.plan()).case.corners.values() if c.stopped] == [1]
    done = run(isolation(place, probe=False), ProbingPool(run=failing))
    assert done is not None
    assert [item.state for item in done.corners] == ["measured"] * 8
    assert [len(item.measured.pairs) for item in done.corners if item.measured.stopped] == [1]
    assert not isolation(place, probe=False).plan().needs_servers


class Kept:
    """The attributes of a study that a sweep holds open."""

    name = "case"

    def __init__(self) -> None:
        self.attrs: dict[str, Any] = {}

    def attr(self, name: str) -> Any:
        return self.attrs.get(name)

    def set_attr(self, name: str, value: Any) -> None:
        self.attrs[name] = value


@pytest.mark.parametrize(
    ("budget", "corners", "probes"),
    [
        (Budget(launches=5), 3, 0),
        (Budget(launches=8), 6, 0),
        (Budget(launches=9), 6, 1),
        (Budget(launches=10, trials=1), 6, 2),
        (Budget(wall_time_s=100.0), 0, 0),
    ],
)
def test_at_the_end_of_a_sweep_its_budget_holds(place: StudyPlace, budget: Budget, corners: int, probes: int) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    study, beats = Kept(), list[int]()
    study.attrs[ELAPSED] = 100.0
    pool, events = ProbingPool(), Events()
    account = Account(of=study, budget=budget, heartbeat=lambda: beats.append(1))  # type: ignore[arg-type]
    isolate_after_sweep(place.read_spec(), place, pool, events, StopRequest(), may_launch=True, account=account)
    assert (len(pool.launched) - len(pool.probed), len(pool.probed)) == (corners, probes)
    assert len(beats) == corners + probes
    assert study.attrs[ELAPSED] >= 100.0
    # a verdict there is, on what there was
    kept = json.loads((place.folder / "isolate.json").read_text())
    assert len(kept["gap"]["missing_corners"]) == 6 - corners
    # a probe without the one it is held against is no result
    assert len(kept["probes"]) == (2 if probes == 2 else 0)
    spent = "wall_time_s" if budget.wall_time_s else "launches"
    said = ("said", f"budget.{spent} is spent: the verdict rests on what is measured")
    assert (said in events.seen) == (corners < 6)


@dataclass
class StoppedInTheFirstProbe(ProbingPool):
    """The groups of a whole sweep; Ctrl-C is pressed once its search is over."""

    device = "cpu"

    def try_start(self, job: TrialJob) -> bool:
        began = super().try_start(job)
        if began and job.probe_tokens is not None:
            signal.raise_signal(signal.SIGINT)
        return began

    def close(self, *, interrupt: bool) -> None:
        assert interrupt


def test_a_sweep_that_is_stopped_in_its_closing_isolation_was_interrupted(
    place: StudyPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ("search.sampler=random", "cluster.gpus=2")
    spec = parse_spec(place.spec_file, changes)
    pool = StoppedInTheFirstProbe()
    monkeypatch.setattr(compose, "check_environment", lambda _: None)
    monkeypatch.setattr(compose, "open_groups", lambda *_, **__: contextlib.nullcontext(pool))
    events = Events()
    result = compose.run_sweep(spec, place, events)
    assert (events.standings[-1].left, result.reason, result.interrupted) == (0, "interrupted", True)
    assert pool.launched[-1].probe_tokens is not None
    assert not (place.folder / "isolate.json").exists()


def test_probes_are_kept_when_what_follows_is_stopped(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    stop = StopRequest()

    class StoppedInTheLastTrace(ProbingPool):
        def try_start(self, job: TrialJob) -> bool:
            if job.trace is not None and job.config.tp_size == 1:
                stop.by = "SIGINT"
            return super().try_start(job)

    assert run(isolation(place, trace=True), StoppedInTheLastTrace(), stop) is None
    again = isolation(place, trace=True).plan()
    assert again.probes == ()
    assert len(again.feeds) == 2


@pytest.mark.parametrize("command", [["isolate", "case", "--dry-run"], ["probe", "case"], ["trace", "case"]])
def test_a_draft_that_changed_is_not_mixed_into_the_study(
    place: StudyPlace, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    monkeypatch.setenv("SPECSWEEP_HOME", str(place.home))
    config = Path(place.read_spec().draft) / "config.json"
    config.write_text(config.read_text().replace("500000", "10000"))
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert "study 'case': draft: " in shown
    assert "is not the checkpoint any more that the study was made with" in shown
    assert shown.count("\n") == 1


def test_taps_that_are_none_are_refused_before_anything_runs(place: StudyPlace) -> None:
    with pytest.raises(InputError, match="--trained-on: '0;3;7' is not a list of taps"):
        isolation(place, trained_on="0;3;7")


def test_trials_and_settings_name_the_ends(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, server((2, 16, 29), 3, 1), "t0001")
    ends = isolation(place, suspect="t0001", reference="t0000-a1").plan().ends
    assert (ends.suspect, ends.reference, ends.chosen_as) == (server((2, 16, 29), 3, 1), server(), "given")
    text = "{layout: [0, 3, 7], num_steps: 1, eagle_topk: 1, num_draft_tokens: 9}"
    assert isolation(place, suspect=text).plan().ends.suspect == server(steps=1, tp=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suspect": "t9"}, "--suspect: 't9' is neither a trial of this study nor a setting"),
        ({"reference": "{num_steps: 1, eagle_topk: 4, num_draft_tokens: 8}"}, "--reference: cannot run: need n-1=7"),
        ({"reference": "{num_step: 1}"}, "--reference: num_step: unknown key; did you mean num_steps?"),
        ({}, "no setting could be ranked"),
    ],
)
def test_ends_that_are_none_are_refused(place: StudyPlace, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(").replace("?", r"\?")):
        isolation(place, **options).plan()


FED, TAPS = (2, 16, 29), (0, 3, 7)


@pytest.mark.parametrize(
    ("trials", "taps"),
    [
        # (layout, steps of the triple, verify steps for the same 41 tokens): fewer is better
        ([(FED, 3, 30), (TAPS, 3, 22)], TAPS),
        # a deep triple flatters the layout that it was measured with
        ([(FED, 3, 26), (TAPS, 1, 30)], None),
        ([(FED, 3, 26), (FED, 1, 36), (TAPS, 1, 30)], TAPS),
        # best of those it can be held against, over what both were measured with
        ([(FED, 1, 36), (TAPS, 1, 30), (FED, 3, 29), (TAPS, 3, 30), ((1, 2, 3), 2, 21)], TAPS),
        ([(FED, 1, 36), (TAPS, 1, 30), ((1, 2, 3), 3, 30), ((4, 5, 6), 3, 22)], None),
        ([(TAPS, 1, 30), (TAPS, 3, 22)], None),
    ],
)
def test_the_training_is_inferred_where_nothing_but_the_layout_differs(
    trials: list[tuple[tuple[int, ...], int, int]], taps: tuple[int, ...] | None
) -> None:
    records = [
        made(number, server(layout, steps, 1), count, 1.0) for number, (layout, steps, count) in enumerate(trials)
    ]
    found = trained_on(None, records, WORKLOAD.workload_id)
    assert (found and found.taps) == taps
    assert found is None or found.source == "inferred"


def test_the_training_is_not_inferred_from_what_does_not_count() -> None:
    records = [made(0, server(FED, 3, 1), 22, 1.0), made(1, server(TAPS, 3, 1), 30, 1.0)]
    refused = replace(records[0], cells=(replace(records[0].cells[0], not_ranked=("warm cache",)),))
    crashed = replace(records[0], failure=Failure(phase="run", kind="crash", message="gone"))
    for bad in (refused, crashed):
        assert trained_on(None, [bad, records[1]], WORKLOAD.workload_id) is None
    assert trained_on(None, records, "another workload") is None
    assert trained_on("4,5,6", records, WORKLOAD.workload_id) == TrainedOn(taps=(4, 5, 6), source="given")


def test_a_report_without_verdicts_stays_as_it_was(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    (place.folder / "isolate.json").write_text("{broken")
    assert report_of(place).verdicts == ()


def test_a_choice_that_accepts_no_more_than_the_suspect_explains_nothing(place: StudyPlace) -> None:
    """The objective may prefer a setting, even the suspect, that accepts little: then the one that accepts most."""
    suspect, chosen, better = server((2, 16, 29), 3, 1), server((2, 16, 29), 1, 1), server((0, 3, 7), 3, 1)

    def ended(fastest: EngineConfig, steps: dict[EngineConfig, int]) -> tuple[EngineConfig, str]:
        records = [
            made(number, config, count, 1.0 if config == fastest else 4.0)
            for number, (config, count) in enumerate(steps.items())
        ]
        ranking = rank(records, Objective(metric="output_throughput", concurrency=1))
        ends = choose_ends(make_plan(place.read_spec()), ranking, records, suspect="t0000")
        return ends.chosen, ends.chosen_as

    lengths = {suspect: 30, chosen: 36, better: 22}  # verify steps for the same 41 tokens
    assert ended(chosen, lengths)[0] == better
    assert ended(suspect, lengths)[0] == better
    assert ended(better, lengths) == (better, "the study's choice")
    assert ended(chosen, {suspect: 22, chosen: 36, better: 22}) == (chosen, "the study's choice")


def made(number: int, config: EngineConfig, steps: int, seconds: float) -> TrialRecord:
    rows = tuple(row(name, tokens=41, finished_s=seconds, steps=steps, triple=config.triple) for name in ("p0", "p1"))
    seen = replace(cell(seconds=seconds, triple=config.triple), rows=rows)
    outcome = replace(succeed(TrialJob(trial_id="t", config=config, workload=WORKLOAD)), cells=(seen,))
    return record_of("case", task_of(config, f"t{number:04d}"), outcome)


def test_traces_at_both_tp_sizes_are_made_once_beside_the_probes(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    found = isolation(place, trace=True)
    plan = found.plan()
    assert [(trace.config, len(trace.left)) for trace in plan.traces] == [
        (SUSPECT, 2),
        (replace(SUSPECT, tp_size=1), 2),
    ]
    assert plan_json("case", plan)["traces"][0] == {
        "layout": "2,16,29", "tp_size": 2, "eagle_topk": 1, "num_steps": 1, "prompts_left": 2, "prompts_done": 0,
    }  # fmt: skip
    assert "would trace layout 2,16,29, tp 2, topk 1, 1 steps, 2 prompts" in show_plan(plan)
    pool = ProbingPool()
    done = run(found, pool)
    assert done is not None
    # the corners end at tp 2, whose server is traced and probed; then tp 1
    recorded = [
        ("trace" if job.trace else "probe", job.config.tp_size)
        for job in pool.launched
        if job.trace is not None or job.probe_tokens is not None
    ]
    assert recorded == [("trace", 2), ("probe", 2), ("probe", 1), ("trace", 1)]
    isolated = found.conclude(done)
    (agreement,) = isolated.case.agreements
    assert (agreement.tp_sizes, agreement.prompts, agreement.by_depth) == ((1, 2), 2, (1.0,))
    kept = json.loads((place.folder / "isolate.json").read_text())
    assert kept["gap"]["traced_agreement"][0]["tp_sizes"] == [1, 2]
    evidence = next(row["evidence"] for row in kept["verdicts"] if row["cause"] == "parallelism")
    assert "traced at tp 1 and 2 with layout 2,16,29 at topk 1: the draft proposes the same at 100.0%" in evidence
    # what is traced is not traced again, and what it cost is known
    again = isolation(place, trace=True).plan()
    assert (again.traces, again.needs_servers) == ((), False)
    assert [job.ended for job in read_trace_launches(traces_path(place.records)).jobs] == [True, True]


def test_nothing_is_traced_unasked_or_at_tp_1(place: StudyPlace) -> None:
    measure(place, server(tp=1), "t0000")
    measure(place, replace(SUSPECT, tp_size=1), "t0001")
    measure(place, SUSPECT, "t0002")
    assert isolation(place).plan().traces == ()
    assert isolation(place, trace=True, suspect="t0001-a1").plan().traces == ()
    assert len(isolation(place, trace=True, suspect="t0002-a1").plan().traces) == 2


def test_the_suspect_is_traced_as_deep_as_what_is_there(place: StudyPlace) -> None:
    """A study that follows its surface has traced tp 1 at the greatest steps of its space."""
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    found = isolation(place, trace=True)
    facts = TraceFacts(
        layout=(2, 16, 29), tp_size=1, eagle_topk=1, num_steps=3, workload_id=found.workload.workload_id,
        ties="lowest_index",
    )  # fmt: skip
    folder = traces_path(place.records) / facts.folder_name
    write_facts(folder, facts)
    texts = [
        TracedPrompt(prompt_id=prompt.prompt_id, request_id="", segment="", prompt_tokens=1, length=2, output_ids=(1,))
        for prompt in WORKLOAD.prompts
    ]
    append_prompts(folder, texts)
    (left,) = found.plan().traces
    assert left.config == server((2, 16, 29), 3)
