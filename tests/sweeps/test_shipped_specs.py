"""The specs that ship with the project are legal, whether or not their models are on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_checkpoints import DRAFT, LLAMA, draft_tensors, write_checkpoint

from search_spaces.errors import InputError
from search_spaces.ready_spaces import ready_space_names
from sweeps.planning import make_plan
from sweeps.spec import load_spec, parse_spec

SPECS = sorted((Path(__file__).parents[2] / "sweeps" / "specs").glob("*.yaml"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_it_is_legal(path: Path) -> None:
    spec = parse_spec(path)
    assert spec.study == path.stem


@pytest.mark.parametrize("name", ["llama-3.1-8b-eagle3", "diagnose"])
def test_a_template_plans_with_models_of_its_kind(tmp_path: Path, name: str) -> None:
    path = next(path for path in SPECS if path.stem == name)
    write_checkpoint(tmp_path / "target", LLAMA | {"num_attention_heads": 32, "num_key_value_heads": 8})
    write_checkpoint(tmp_path / "draft", DRAFT, draft_tensors(), d2t=list(range(0, 32000 * 3, 3)))
    spec = load_spec(path, [f"target={tmp_path}/target", f"draft={tmp_path}/draft"])
    plan = make_plan(spec)
    assert plan.findings == ()
    assert plan.servers.effective >= 10
    assert plan.launches < 200


@pytest.mark.parametrize("name", ["llama-3.1-8b-eagle3", "diagnose"])
def test_a_missing_model_is_another_error_than_a_wrong_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=rf"{name}\.yaml:\d+: target: .*give an absolute path"):
        load_spec(next(path for path in SPECS if path.stem == name))


@pytest.mark.parametrize("name", ready_space_names())
def test_every_ready_space_can_be_named_and_changed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"target: org/target\ndraft: org/draft\nspace: {{catalog: {name}, tp_size: [4]}}\n")
    spec = parse_spec(path)
    assert spec.space.tp_size == (4,)
    assert len(spec.space.num_steps) > 1
    assert spec.space.catalog == name
