"""What `status` counts of a study that checks its switches and follows a surface."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trial_builders
from search_doubles import succeed
from spec_files import write_spec
from trial_builders import WORKLOAD, baseline

from actors.job import TrialJob
from results.study_surface import traces_path
from results.trace_launches import TraceJournal
from results.traces import TracedPrompt, TraceFacts, append_prompts, write_facts
from search_spaces.config import Flags
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import fixed_trials
from sweeps.claiming import claim_study, save_spec
from sweeps.cli import main
from sweeps.home import StudyPlace
from sweeps.legal_space import LegalSpace
from sweeps.planning import make_plan
from sweeps.recording import record_of, write_record
from sweeps.spec import load_spec
from sweeps.study_status import read_status
from sweeps.tasks import FixedTrial, open_tasks

SETS = ("engine.device=cpu", "search.sampler=surface")


def study(folder: Path, *sets: str) -> StudyPlace:
    spec = load_spec(write_spec(folder), (*SETS, *sets))
    place = claim_study(spec, folder / "home")
    save_spec(place, spec)
    return place


def trace(place: StudyPlace, layout: tuple[int, ...], prompts: int, flags: Flags = (), parallel: Flags = ()) -> None:
    facts = TraceFacts(
        layout=layout,
        tp_size=1,
        eagle_topk=1,
        num_steps=3,
        workload_id="w",
        ties="lowest_index",
        flags=flags,
        parallel=parallel,
    )
    folder = traces_path(place.records) / facts.folder_name
    write_facts(folder, facts)
    texts = [
        TracedPrompt(prompt_id=str(i), request_id="", segment="", prompt_tokens=1, length=2, output_ids=(1, 2))
        for i in range(prompts)
    ]
    append_prompts(folder, texts)


def shown(place: StudyPlace, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    assert main(["status", str(place.folder), "--json"]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["status", str(place.folder)]) == 0
    return content, capsys.readouterr().out


def test_what_is_left_holds_the_check(tmp_path: Path) -> None:
    """Two servers and a baseline; where servers are switched, one of them is also launched afresh."""
    assert read_status(study(tmp_path)).left == 4
    assert read_status(study(tmp_path / "launched", "engine.switching=off")).left == 3


def test_launches_of_records_and_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = study(tmp_path)
    content, text = shown(place, capsys)
    row = {"layout": "2,16,29", "tp_size": 1, "eagle_topk": 1, "num_steps": 3, "flags": {}}
    assert content["study_launches"] == {"records": 0, "traces": 0, "all": 0}
    assert content["traces"] == [{**row, "prompts": 0, "wanted": True}]
    assert "loaded 0 times, 0 of them to trace; 0 of 1 traces begun, 0 prompts" in text

    place.records.open_for_write()
    ((_, task),) = open_tasks([FixedTrial(base="baseline-tp1", role="baseline", setting=None, config=baseline())], ())
    outcome = succeed(TrialJob(trial_id=task.trial_id, config=task.config, workload=WORKLOAD))
    write_record(place.records, record_of(place.name, task, outcome), outcome)
    journal = TraceJournal(traces_path(place.records))
    journal.begin("trace", "tp1", "a layout")
    journal.end(server_starts=1, failed=False)
    TraceJournal(traces_path(place.records)).begin("cut off", "tp1", "a layout")
    trace(place, (2, 16, 29), 7)
    trace(place, (0, 3, 7), 5)
    content, text = shown(place, capsys)
    assert (content["records"], content["left"]) == (1, 3)
    assert content["study_launches"] == {"records": 1, "traces": 2, "all": 3}
    assert content["traces"] == [
        {**row, "prompts": 7, "wanted": True},
        {**row, "layout": "0,3,7", "prompts": 5, "wanted": False},
    ]
    assert "loaded 3 times, 2 of them to trace; 2 of 2 traces begun, 12 prompts" in text


def test_a_trace_of_other_flags_is_another_trace(tmp_path: Path) -> None:
    """Such as one that was made before flags were noted: the search traces anew."""
    place = study(tmp_path, "space.flags={kv_cache_dtype: [fp8_e5m2], dp_size: [1]}")
    flags = {"dp_size": 1, "kv_cache_dtype": "fp8_e5m2"}
    wanted = {"layout": "2,16,29", "tp_size": 1, "eagle_topk": 1, "num_steps": 3, "flags": flags}
    trace(place, (2, 16, 29), 7)
    old = {**wanted, "flags": {}, "prompts": 7, "wanted": False}
    assert [standing.to_json() for standing in read_status(place).traces] == [
        {**wanted, "prompts": 0, "wanted": True}, old,
    ]  # fmt: skip
    trace(place, (2, 16, 29), 5, flags=(("kv_cache_dtype", "fp8_e5m2"),), parallel=(("dp_size", 1),))
    assert [standing.to_json() for standing in read_status(place).traces] == [
        {**wanted, "prompts": 5, "wanted": True}, old,
    ]  # fmt: skip


def test_a_study_without_traces_says_nothing_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, text = shown(study(tmp_path, "search.sampler=tpe"), capsys)
    assert content["traces"] == []
    assert "to trace" not in text


@pytest.mark.parametrize(("base", "steps", "left"), [("suspect-1", 1, 0), ("suspect-1", 3, 1), ("baseline-tp2", 1, 1)])
def test_a_suspect_that_was_measured_under_its_former_name_is_done(
    tmp_path: Path, base: str, steps: int, left: int
) -> None:
    place = study(tmp_path, "suspect={num_steps: 1, eagle_topk: 1, num_draft_tokens: 2, tp_size: 2}")
    place.records.open_for_write()
    effective = replace(trial_builders.config(steps), layout=(2, 16, 29), tp_size=2)
    ((_, begun),) = open_tasks([FixedTrial(base=base, role="suspect", setting=None, config=effective)], ())
    outcome = succeed(TrialJob(trial_id=begun.trial_id, config=effective, workload=WORKLOAD))
    write_record(place.records, record_of(place.name, begun, outcome), outcome)
    records, plan = place.records.records(), make_plan(place.read_runnable_spec())
    legal = LegalSpace(plan.space, RuleBook(plan.context).resolve)
    fixed = fixed_trials(plan, legal, records, repeats=1, expected_trials=2)
    assert sum(task.role == "suspect" for _, task in open_tasks(fixed, records)) == left
