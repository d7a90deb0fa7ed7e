from __future__ import annotations

import json
from pathlib import Path

import pytest
from spec_files import MINIMAL, write_spec

from search_spaces.config import Setting
from sweeps.spec import dump_snapshot, json_schema, load_spec


def test_a_minimal_spec_is_target_draft_and_space(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path))
    assert spec.study == "case"
    assert spec.target == str(tmp_path / "models" / "target")
    assert spec.draft == str(tmp_path / "models" / "draft")
    assert spec.space.num_steps == (1, 3)
    assert spec.space.layout_labels == ("shipped",)
    assert spec.space.tp_size == (1,)
    assert (spec.objective.metric, spec.objective.goal, spec.objective_concurrency) == (
        "output_throughput",
        "maximize",
        1,
    )
    assert spec.budget.repeats == 1
    assert spec.tracking.enabled


def test_layouts_ranges_and_flags(tmp_path: Path) -> None:
    text = """\
target: models/target
draft: models/draft
space:
  layout: [[0, 3, 7], default, shipped]
  num_steps: {low: 1, high: 7, step: 2}
  eagle_topk: [1, null]
  tp_size: {low: 1, high: 2}
  flags:
    mem_fraction_static: {low: 0.7, high: 0.9, step: 0.1}
    attention_backend: [fa3, triton]
suspect: {layout: [3, 1], num_steps: 1, eagle_topk: 1, num_draft_tokens: 8, tp_size: 8, flags: {b: 1, a: true}}
"""
    spec = load_spec(write_spec(tmp_path, text))
    assert spec.space.layout_labels == ("0,3,7", "default", "shipped")
    assert spec.space.num_steps == (1, 3, 5, 7)
    assert spec.space.eagle_topk == (1, None)
    assert spec.space.tp_size == (1, 2)
    assert spec.space.flags["mem_fraction_static"] == (0.7, 0.8, 0.9)
    assert spec.suspect is not None
    assert spec.suspect.to_setting() == Setting(
        layout="3,1", num_steps=1, eagle_topk=1, num_draft_tokens=8, tp_size=8, flags=(("a", True), ("b", 1))
    )


def test_latencies_are_minimised_unless_said_otherwise(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    assert load_spec(path, ["objective.metric=tpot_ms_p50"]).objective.goal == "minimize"
    assert load_spec(path, ["objective.metric=accept_length"]).objective.goal == "maximize"
    assert load_spec(path, ["objective={direction: minimize, concurrency: 8}"]).objective_concurrency == 8


def test_off_is_a_word_as_in_yaml_1_2(tmp_path: Path) -> None:
    assert load_spec(write_spec(tmp_path, MINIMAL + "engine: {switching: off}\n")).engine.switching == "off"
    assert load_spec(write_spec(tmp_path), ["engine.switching=off"]).engine.switching == "off"


def test_blank_sections_are_their_defaults(tmp_path: Path) -> None:
    assert load_spec(write_spec(tmp_path, MINIMAL + "engine:\nworkload:\n")).engine.device == "auto"


def test_paths_are_relative_to_the_spec_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "p.jsonl").write_text("{}\n")
    path = write_spec(
        tmp_path / "specs", MINIMAL + "workload: {prompts: p.jsonl}\nengine: {python: ../venv/bin/python}\n"
    )
    monkeypatch.chdir(tmp_path)
    spec = load_spec(path.relative_to(tmp_path))
    assert spec.target == str(tmp_path / "specs" / "models" / "target")
    assert spec.workload.prompts == str(tmp_path / "specs" / "p.jsonl")
    assert spec.engine.python == str(tmp_path / "specs" / "../venv/bin/python")
    assert load_spec(path, ["engine.python=python3.11"]).engine.python == "python3.11"


@pytest.mark.parametrize(
    ("prompts", "read"),
    [
        ("hf:saved", "hf:{folder}/saved"),
        ("hf:saved:test", "hf:{folder}/saved:test"),
        ("hf:./elsewhere:main:test[:5]", "hf:{folder}/elsewhere:main:test[:5]"),
        ("hf:org/set:test", "hf:org/set:test"),
    ],
)
def test_a_saved_dataset_is_relative_to_the_spec_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompts: str, read: str
) -> None:
    folder = tmp_path / "specs"
    (folder / "saved").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    spec = load_spec(write_spec(folder, MINIMAL + f"workload: {{prompts: '{prompts}'}}\n"))
    assert spec.workload.prompts == read.format(folder=folder)


def test_a_repo_id_is_found_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "hub" / "models--org--draft" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert load_spec(write_spec(tmp_path), ["draft=org/draft"]).draft == str(snapshot)


def test_overrides_replace_and_add(tmp_path: Path) -> None:
    options = ["space.tp_size=[1,2]", "engine.args.mem_fraction_static=0.8", "study=other", "budget.wall_time_s=1e3"]
    spec = load_spec(write_spec(tmp_path), options)
    assert spec.space.tp_size == (1, 2)
    assert spec.space.num_steps == (1, 3)
    assert spec.engine.args == {"mem_fraction_static": 0.8}
    assert (spec.study, spec.budget.wall_time_s) == ("other", 1000.0)


def test_a_snapshot_reads_back_as_the_same_spec(tmp_path: Path) -> None:
    text = MINIMAL + "suspect: {layout: [0, 3, 7]}\nengine: {args: {cuda_graph_max_bs: 2, x: true}}\n"
    spec = load_spec(write_spec(tmp_path, text))
    (tmp_path / "elsewhere").mkdir()
    snapshot = tmp_path / "elsewhere" / "spec.json"
    snapshot.write_bytes(dump_snapshot(spec))
    again = load_spec(snapshot)
    assert again == spec
    assert dump_snapshot(again) == dump_snapshot(spec)


def test_the_committed_schema_is_current() -> None:
    committed = Path(__file__).parents[2] / "docs" / "spec.schema.json"
    assert json.loads(committed.read_text()) == json_schema(), "run: specsweep schema > docs/spec.schema.json"


def test_every_key_is_described_in_the_schema() -> None:
    sections = [json_schema(), *json_schema()["$defs"].values()]
    bare = [key for section in sections for key, value in section["properties"].items() if not _described(value)]
    assert bare == []


def _described(value: dict[str, object]) -> bool:
    return "description" in value or "$ref" in value
