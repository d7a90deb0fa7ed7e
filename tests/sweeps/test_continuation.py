"""What another spec, or another checkpoint, may change of a study that exists."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import write_spec

from search_spaces.errors import InputError
from sweeps.claiming import claim_study, save_spec
from sweeps.home import find_study
from sweeps.spec import load_spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("space.num_steps=[1,5]", r"another space\.num_steps: \[1, 3\] there, \[1, 5\] here"),
        ("space.flags={a: [1]}", r"another space\.flags\.a: null there, \[1\] here"),
        ("draft=models/target", r"another draft: '.*/draft' there, '.*/target' here"),
        ("workload.temperature=1", r"another workload\.temperature: 0\.0 there, 1\.0 here"),
        ("objective.direction=minimize", r"another objective\.direction: null there, 'minimize' here"),
        ("engine.env={A: b}", r"another engine\.env\.A: null there, 'b' here"),
        ("search.storage=sqlite:////x.db", r"another search\.storage"),
    ],
)
def test_another_study_under_the_same_name_is_refused(tmp_path: Path, change: str, message: str) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    spec = load_spec(path)
    save_spec(claim_study(spec, home), spec)
    before = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    with pytest.raises(InputError, match=message) as caught:
        claim_study(load_spec(path, [change]), home)
    assert "\n" not in str(caught.value)
    assert "give this spec another `study` name" in str(caught.value)
    assert {file: file.read_bytes() for file in home.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    "change",
    [
        "budget.trials=9",
        "search.sampler=random",
        "search={sampler: auto, seed: 3, stop_at_gain: 0.001}",
        "cluster.gpus=2",
        "tracking.enabled=false",
        "engine.ready_timeout_s=5",
        "suspect={num_steps: 1}",
        "workload.max_attempts=1",
    ],
)
def test_a_study_may_go_on_with_another_budget_or_place(tmp_path: Path, change: str) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    save_spec(claim_study(load_spec(path), home), load_spec(path))
    changed = load_spec(path, [change])
    save_spec(claim_study(changed, home), changed)
    assert find_study("case", home).read_spec() == changed


def test_models_may_move_but_not_change(tmp_path: Path) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    save_spec(claim_study(load_spec(path), home), load_spec(path))
    (tmp_path / "models").rename(tmp_path / "moved")
    moved = load_spec(path, ["target=moved/target", "draft=moved/draft"])
    assert claim_study(moved, home).exists
    config = tmp_path / "moved" / "draft" / "config.json"
    config.write_text(config.read_text().replace("500000", "10000"))
    with pytest.raises(InputError, match=r"another draft: '.*/models/draft' there, '.*/moved/draft' here"):
        claim_study(moved, home)
    with pytest.raises(InputError, match=r"target: .*give an absolute path"):
        find_study("case", home).read_runnable_spec()
    assert find_study("case", home).read_spec().target == str(tmp_path / "models" / "target")
