"""A search by surface in the sweep's own loop, on simulated servers: proposals, notes, resuming, fallback, ending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from search_doubles import SMALL, SPACE, Events, InstantPool, MemoryStore, fail, resolve, setting, study_in
from trial_builders import WORKLOAD, cell, launch, row

from actors.job import TrialJob, TrialOutcome
from results.failures import Failure
from results.objective import Objective
from results.observations import RequestRow
from results.records import TrialRecord
from results.request_table import CellKey
from results.search_notes import SearchNotes, read_notes
from results.store import StudyFolder
from results.study_surface import traces_path
from results.summary import Estimate
from results.surface import SurfacePoint
from results.trace_launches import TraceJournal
from search_spaces.config import EngineConfig, Triple
from sweeps import surface_search
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan
from sweeps.recording import record_of
from sweeps.study import SearchStudy
from sweeps.surface_sampler import Prices
from sweeps.surface_search import SurfaceSearch
from sweeps.tasks import FixedTrial, open_tasks
from sweeps.trace_plans import PlannedTrace
from sweeps.tracing import FinishedTrace, TraceRun

NOTHING_RUN = TraceRun(traces=(), weight_loads=0, elapsed_s=0.0, stopped=False)


def length(config: EngineConfig) -> float:
    assert config.triple is not None
    assert config.layout is not None
    chance = 0.8 if config.layout[0] == 0 else 0.3
    return 1 + sum(chance**i for i in range(1, config.triple.num_steps + 1)) * (1 + 0.05 * config.triple.eagle_topk)


def seconds(config: EngineConfig) -> float:
    """82 tokens at one request at a time; a round costs 10 ms and more for steps and tokens."""
    assert config.triple is not None
    round_s = 0.010 + 0.002 * config.triple.num_steps + 0.0002 * config.triple.num_draft_tokens
    return 82 * round_s / length(config)


def points(configs: Sequence[EngineConfig], *, method: str = "replay", prompts: int = 9) -> tuple[SurfacePoint, ...]:
    return tuple(
        SurfacePoint(
            layout=config.layout or (),
            tp_size=1,
            triple=config.triple or Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2),
            accept_length=Estimate(value=length(config), low=1.0, high=5.0, count=prompts),
            acceptance_by_position=(),
            histogram=(),
            rounds=9,
            method=method,  # type: ignore[arg-type]
        )
        for config in configs
    )


def answer(job: TrialJob) -> TrialOutcome:
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=100.0,
        finished_at_unix_s=110.0,
        launch=replace(launch(), switch_s=0.3, weights_loaded=False),
        cells=(cell(seconds=seconds(job.config), triple=job.config.triple),),
        failure=None,
        server_log="log",
    )


def rows_of(_: str) -> dict[CellKey, list[RequestRow]]:
    """Every trial took 30 verify steps for either of its prompts, of 41 tokens each."""
    triple = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)
    return {(1, None): [row(name, tokens=41, finished_s=1.0, steps=30, triple=triple) for name in ("p0", "p1")]}


class Search:
    """One session over `folder`; another one over the same folder and records continues it."""

    def __init__(self, folder: Path, records: Sequence[TrialRecord] = (), **options: Any) -> None:
        self.gain: float | None = options.pop("stop_at_gain", None)
        self.trials: int | None = options.pop("trials", None)
        self.switches: Callable[[], bool] = options.pop("switches", lambda: True)
        space = options.pop("space", SPACE)
        self.legal = LegalSpace(space, resolve)
        self.ledger = Ledger(records)
        self.store, self.pool, self.events = MemoryStore(records), InstantPool(run=answer), Events()
        self.study: SearchStudy = study_in(folder, self.ledger, space, sampler="surface")
        self.study.stay_on_tp(self.switches)
        self.folder = StudyFolder(folder)
        self.surface = SurfaceSearch(
            self.study,
            self.folder,
            self.legal,
            self.ledger,
            batch=1,
            seed=3,
            stop_at_gain=self.gain,
            switches=self.switches,
            say=self.events.said,
            rows_of=rows_of,
        )

    def run(self, traced: TraceRun = NOTHING_RUN) -> str:
        self.surface.begin(traced, self.store.records())
        loop = SweepLoop(
            study=self.study,
            store=self.store,
            pool=self.pool,
            legal=self.legal,
            ledger=self.ledger,
            plan=LoopPlan(
                workload=WORKLOAD,
                objective=Objective(),
                fixed=(),
                budget=Budget(trials=self.trials),
                repeats=1,
                retries=0,
                launches_before=self.surface.notes.weight_loads,
            ),
            observer=self.surface,
            stop=StopRequest(),
            heartbeat=lambda: None,
            enough=self.surface.enough,
        )
        reason = loop.run()
        self.surface.end(reason)
        return reason

    @property
    def notes(self) -> SearchNotes:
        notes = read_notes(self.folder)
        assert notes is not None
        return notes


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = LegalSpace(SPACE, resolve).configs
    monkeypatch.setattr(surface_search, "study_surface", lambda *_: points(configs))


def best_config() -> EngineConfig:
    return min(LegalSpace(SPACE, resolve).configs, key=seconds)


@pytest.mark.usefixtures("traced")
def test_ends_at_the_best_when_the_spec_asks_for_it(tmp_path: Path) -> None:
    search = Search(tmp_path, stop_at_gain=0.005)
    search.study.enqueue(setting(layout="default", steps=1), role="search", label="first")
    assert search.run() == "gain"
    measured = [job.config for job in search.pool.launched]
    assert best_config() in measured
    assert len(measured) < 9
    assert len(measured) == len(set(measured))
    notes = search.notes
    assert notes.trusted
    assert notes.fallback is None
    # the first one had no prediction
    assert len(notes.comparisons) == len(measured) - 1
    last = notes.comparisons[-1]
    assert last["measured"] == pytest.approx(82 / seconds(measured[-1]))
    assert last["low"] < last["predicted"] < last["high"]
    assert notes.gain_left is not None
    assert 0 <= notes.gain_left < 0.005
    assert "the search ended early" in notes.sentences[-1]
    assert f"of {len(measured) - 1} measurements lay in the 95 % interval predicted for them" in notes.sentences[-2]


def refuse(ledger: Ledger, configs: Sequence[EngineConfig]) -> None:
    for config in configs:
        ledger.refuse(config, "SGLang says no")


def settle(ledger: Ledger, configs: Sequence[EngineConfig]) -> None:
    """Launched before as the suspect, which is no trial of the study."""
    for config in configs:
        job = TrialJob(trial_id="suspect-1-a1", config=config, workload=WORKLOAD)
        trial = FixedTrial(base="suspect-1", role="suspect", setting=None, config=config)
        ((_, task),) = open_tasks([trial], [])
        ledger.add(record_of("s", task, answer(job)))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("close", [refuse, settle])
def test_what_the_ledger_has_closed_is_no_part_of_the_search(
    tmp_path: Path, close: Callable[[Ledger, Sequence[EngineConfig]], None]
) -> None:
    """The best six servers are closed: the best of the others is found as soon, and the search ends by its gain."""
    ranked = sorted(LegalSpace(SPACE, resolve).configs, key=seconds)
    search = Search(tmp_path, stop_at_gain=0.005)
    close(search.ledger, ranked[:6])
    assert search.run() == "gain"
    measured = [job.config for job in search.pool.launched]
    assert ranked[6] in measured
    assert not set(measured) & set(ranked[:6])
    assert len(measured) < 9
    assert len(search.notes.comparisons) == len(measured) - 1


@pytest.mark.usefixtures("traced")
def test_trees_larger_than_memory_are_not_proposed_again(tmp_path: Path) -> None:
    """Trees of 8 tokens run out of memory: after the smallest of them nothing larger stands in for a measurement."""

    def run(job: TrialJob) -> TrialOutcome:
        triple = job.config.triple
        assert triple is not None
        too_large = Failure(phase="launch", kind="oom", message="no memory")
        return fail(job, too_large) if triple.num_draft_tokens == 8 else answer(job)

    search = Search(tmp_path, stop_at_gain=0.005)
    search.pool.run = run
    assert search.run() == "gain"
    measured = [job.config for job in search.pool.launched]
    fits = [config for config in search.legal.configs if config.triple and config.triple.num_draft_tokens < 8]
    assert min(fits, key=seconds) in measured
    assert len(measured) < 9


@pytest.mark.usefixtures("traced")
def test_never_ends_early_by_itself_and_measures_each_server_once(tmp_path: Path) -> None:
    search = Search(tmp_path, space=SMALL)
    assert search.run() == "exhausted"
    assert len(search.pool.launched) == search.legal.size == len({job.config for job in search.pool.launched})
    assert search.notes.gain_left is None


@pytest.mark.usefixtures("traced")
def test_a_resumed_search_goes_on_by_the_same_surface(tmp_path: Path) -> None:
    first = Search(tmp_path, trials=3)
    now = [0.0]
    journal = TraceJournal(traces_path(first.folder), clock=lambda: now[0])
    journal.begin("trace", "tp1", "a layout")
    now[0] = 2.5
    journal.end(server_starts=1, failed=False)
    assert first.run() == "trials"
    before = first.notes.comparisons
    second = Search(tmp_path, first.store.records(), trials=6)
    assert second.run() == "trials"
    both = [job.config for search in (first, second) for job in search.pool.launched]
    assert len(set(both)) == 6
    assert best_config() in both
    rows = second.notes.comparisons
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[:2] == before  # what was predicted then, not what is known now
    assert (second.notes.weight_loads, second.notes.trace_s) == (1, 2.5)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("trusted", [True, False])
def test_a_tp_size_is_kept_to_as_long_as_switching_is_trusted(tmp_path: Path, trusted: bool) -> None:
    """Trust is lost while the first server runs, or never."""

    def switches() -> bool:
        return trusted or not search.pool.launched

    search = Search(tmp_path, space=replace(SPACE, tp_size=(1, 2)), trials=2, switches=switches)
    assert search.run() == "trials"
    assert [job.config.tp_size for job in search.pool.launched] == [1, 1 if trusted else 2]


@pytest.mark.parametrize(
    ("rounds", "equal", "trusted"), [((30, 30), 2, True), ((30, 31), 1, True), ((30, 20), 1, False)]
)
def test_verify_steps_are_held_against_the_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: tuple[int, int], equal: int, trusted: bool
) -> None:
    """Three mispredicted settings, and the traces are not followed any more, whatever the throughput."""
    configs = LegalSpace(SPACE, resolve).configs
    told = {"prompt_ids": ("p0", "p1"), "rounds_by_prompt": rounds, "tokens_by_prompt": (41, 41)}
    found = [replace(point, **told) for point in points(configs)]  # type: ignore[arg-type]
    monkeypatch.setattr(surface_search, "study_surface", lambda *_: found)
    search = Search(tmp_path, trials=4)
    assert search.run() == "trials"
    notes = search.notes
    assert notes.trusted is trusted
    assert len(notes.rounds) == 4
    assert notes.rounds[0]["prompts"] == 2
    assert notes.rounds[0]["equal_prompts"] == equal
    assert (notes.rounds[0]["predicted"], notes.rounds[0]["measured"]) == (sum(rounds), 60)
    sentence = f"search by surface: {4 * equal} of 8 requests took exactly the verify steps that the traces say"
    assert any(text.startswith(sentence) for text in notes.sentences)
    doubts = [finding for finding in notes.findings if "are not followed any more: 3 settings took other" in finding]
    assert bool(doubts) is not trusted
    # the next driver comes to the same conclusion, before it asks for anything
    again = Search(tmp_path, search.store.records(), trials=4)
    again.surface.begin(NOTHING_RUN, search.store.records())
    assert again.notes.trusted is trusted


def test_a_cell_that_sent_few_prompts_is_compared_by_what_these_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three traced prompts two were sent, which accept 41 / 30; the accept length is over all three."""
    configs = LegalSpace(SPACE, resolve).configs
    told = {"prompt_ids": ("p0", "p1", "p2"), "rounds_by_prompt": (30, 30, 9), "tokens_by_prompt": (41, 41, 41)}
    found = [replace(point, **told) for point in points(configs)]  # type: ignore[arg-type]
    monkeypatch.setattr(surface_search, "study_surface", lambda *_: found)
    search = Search(tmp_path, trials=2)
    assert search.run() == "trials"
    (compared,) = search.notes.comparisons
    config = search.pool.launched[1].config
    assert compared["measured"] == pytest.approx(82 / seconds(config) * length(config) / (41 / 30))


@pytest.mark.usefixtures("traced")
def test_prices_are_what_the_study_took(tmp_path: Path) -> None:
    assert surface_search.prices_of([]) == Prices()
    search = Search(tmp_path, trials=1)
    search.pool.run = lambda job: replace(answer(job), launch=replace(launch(), ready_s=40.0))
    assert search.run() == "trials"
    (launched,) = search.store.records()
    switched = [
        replace(launched, launch=replace(launch(), ready_s=40.0, switch_s=seconds, weights_loaded=False))
        for seconds in (0.5, 0.7)
    ]
    prices = surface_search.prices_of([launched, *switched])
    assert (prices.launch_s, prices.switch_s) == (40.0, pytest.approx(0.6))
    assert prices.measure_s == launched.cells[0].duration_s


def test_without_a_trace_tpe_is_followed_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = LegalSpace(SPACE, resolve).configs
    # estimates from measured chains alone do not count as traces
    monkeypatch.setattr(surface_search, "study_surface", lambda *_: points(configs, method="survival"))
    failure = Failure(phase="launch", kind="mismatch", message="cannot trace: no rank answered")
    plan = PlannedTrace(config=best_config(), left=(), done=0)
    run = replace(
        NOTHING_RUN, weight_loads=2, traces=(FinishedTrace(plan=plan, prompts=0, problems=(), failure=failure),)
    )
    search = Search(tmp_path, trials=4, stop_at_gain=0.5)
    assert search.run(run) == "trials"
    notes = search.notes
    assert notes.fallback == "nothing could be traced; cannot trace: no rank answered"
    assert notes.sentences[0] == f"search by surface: fell back to TPE: {notes.fallback}"
    assert "failed: mismatch: cannot trace" in notes.sentences[1]
    assert notes.comparisons == ()
    assert ("said", f"the search falls back to TPE: {notes.fallback}") in search.events.seen


def test_a_stop_before_the_first_trace_is_no_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_search, "study_surface", lambda *_: ())
    search = Search(tmp_path)
    search.surface.begin(replace(NOTHING_RUN, stopped=True), ())
    search.surface.end("interrupted")
    assert search.notes.fallback is None
    assert search.events.seen == []
    # the next driver traces anew, and says so when that comes to nothing
    search.surface.begin(NOTHING_RUN, ())
    assert search.notes.fallback == "nothing could be traced"


def test_settings_without_a_trace_are_left_to_tpe_and_never_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = LegalSpace(SMALL, resolve).configs
    # what was traced on a few prompts only is no more than what was not traced
    found = (*points(configs[:4]), *points(configs[4:], prompts=2))
    monkeypatch.setattr(surface_search, "study_surface", lambda *_: found)
    search = Search(tmp_path, stop_at_gain=0.5, space=SMALL)
    assert search.run() == "exhausted"
    assert len(search.pool.launched) == search.legal.size
    assert any("are not covered by a trace: left to TPE" in finding for finding in search.notes.findings)
