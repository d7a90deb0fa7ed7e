"""How often each baseline is launched when the spec leaves it open, and that a study keeps the number it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import write_spec

from search_spaces.errors import InputError
from sweeps.claiming import claim_study, save_spec
from sweeps.cli import main
from sweeps.continuation import continued
from sweeps.planning import TRIALS_PER_BASELINE, make_plan
from sweeps.spec import load_spec, parse_spec

EIGHT = "space.num_steps=[1, 2, 3, 4, 5, 6, 7, 8]"
"""At topk 1 a server each, whatever the draft tokens."""


def launches(folder: Path, *overrides: str) -> int:
    return make_plan(load_spec(write_spec(folder), overrides)).baseline_launches


def test_a_study_of_many_trials_tests_for_drift(tmp_path: Path) -> None:
    assert TRIALS_PER_BASELINE == 8
    assert launches(tmp_path, EIGHT) == 3
    assert launches(tmp_path, "space.num_steps=[1, 2, 3, 4, 5, 6, 7]") == 1
    # repeats are trials too; each TP size has a baseline of its own
    assert launches(tmp_path, "space.num_steps=[1, 2, 3, 4]", "budget.repeats=2") == 3
    assert launches(tmp_path, EIGHT, "space.tp_size=[1, 2]") == 3
    assert launches(tmp_path, "space.num_steps=[1, 2, 3, 4, 5, 6]", "space.tp_size=[1, 2]") == 1


def test_a_budget_makes_a_study_small(tmp_path: Path) -> None:
    assert launches(tmp_path, EIGHT, "budget.trials=7") == 1
    assert launches(tmp_path, EIGHT, "budget.launches=7") == 1
    assert launches(tmp_path, EIGHT, "budget.trials=8", "budget.launches=11") == 3
    # the launches of the baselines are none of trials
    assert launches(tmp_path, EIGHT, "budget.launches=10") == 1


def test_a_number_is_a_number(tmp_path: Path) -> None:
    assert launches(tmp_path, EIGHT, "budget.baselines=1") == 1
    assert launches(tmp_path, "budget.baselines=2") == 2
    with pytest.raises(InputError, match=r"budget\.baselines: 0 is neither a whole number of at least 1 nor `auto`"):
        launches(tmp_path, "budget.baselines=0")


def test_every_launch_is_planned_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write_spec(tmp_path))
    assert main(["plan", path, "--set", EIGHT, "--set", "space.tp_size=[1, 2]"]) == 0
    shown = capsys.readouterr().out
    assert "launches                22  16 servers + 2 baselines x 3\n" in shown
    assert "baselines                6  each from the study's start to its end, which tests for drift\n" in shown
    assert "6 for baselines" in shown
    cut = ["--set", EIGHT, "--set", "budget.baselines=3", "--set", "engine.device=cuda"]
    assert main(["plan", path, *cut, "--set", "budget.launches=3"]) == 0
    shown = capsys.readouterr().out
    assert "baselines                2  of 3: too few within the budget to test for drift everywhere\n" in shown
    assert main(["plan", path, *cut, "--set", "budget.wall_time_s=300"]) == 0
    assert "budget.wall_time_s, which the numbers above do not allow for\n" in capsys.readouterr().out
    assert main(["plan", path]) == 0
    shown = capsys.readouterr().out
    assert "launches                 3  2 servers + 1 baseline\n" in shown
    assert "baselines                1  drift is not tested (budget.baselines: 3 would)\n" in shown


def test_a_study_goes_on_with_the_baselines_it_has(tmp_path: Path) -> None:
    """Also one that was begun when a number was the default."""
    path, home = write_spec(tmp_path), tmp_path / "home"
    before = load_spec(path, [EIGHT, "budget.baselines=1"])
    place = claim_study(before, home)
    assert continued(place, before) == before
    save_spec(place, before)
    now = load_spec(path, [EIGHT])
    assert claim_study(now, home) == place
    assert continued(place, now).budget.baselines == 1
    assert continued(place, load_spec(path, [EIGHT, "budget.baselines=3"])).budget.baselines == 3
    assert make_plan(place.read_runnable_spec()).baseline_launches == 1


def test_an_open_number_stays_open(tmp_path: Path) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    spec = load_spec(path)
    save_spec(claim_study(spec, home), spec)
    assert continued(claim_study(spec, home), spec).budget.baselines == "auto"


def test_a_running_server_has_no_baseline(tmp_path: Path) -> None:
    path = write_spec(tmp_path, "target: models/target\ndraft: models/draft\nspace: {}\n")
    endpoint = "engine={kind: endpoint, url: 'http://127.0.0.1:1'}"
    assert make_plan(load_spec(path, [endpoint])).baselines == 0
    assert parse_spec(path, [endpoint, "budget.baselines=1"]).budget.baselines == 1
    with pytest.raises(InputError, match="budget: repeats and baselines are launches"):
        parse_spec(path, [endpoint, "budget.baselines=3"])
