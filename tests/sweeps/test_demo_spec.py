"""The demo's spec: what it covers, and that its plan has something to say."""

from pathlib import Path

import pytest

from actors.demo_models.training import TRAINED_LAYOUT
from search_spaces.errors import InputError
from sweeps.cli import main
from sweeps.planning import make_plan
from sweeps.spec import load_spec

SPEC = Path(__file__).parents[2] / "sweeps" / "specs" / "demo.yaml"


def test_it_names_the_committed_pair_and_the_trained_layout():
    spec = load_spec(SPEC)
    assert Path(spec.target) == SPEC.parent / "demo_pair" / "target"
    assert Path(spec.draft) == SPEC.parent / "demo_pair" / "draft"
    assert TRAINED_LAYOUT in spec.space.layout
    assert "shipped" in spec.space.layout
    assert set(spec.space.tp_size) == {1, 2}
    assert spec.suspect is not None
    assert spec.suspect.layout == "shipped"


def test_its_plan_has_refusals_silent_changes_and_a_repeated_server(capsys):
    import json

    assert main(["plan", str(SPEC), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["requested"], plan["legal"], plan["effective"], plan["launches"]) == (24, 18, 12, 14)
    assert {row["rule"] for row in plan["illegal"]} == {"tree_pool"}
    assert {row["rule"] for row in plan["adjusted"]} == {"topk1_tokens"}
    assert [row["taps"] for row in plan["layouts"]] == [[0, 3, 7], [2, 4, 5], [2, 4, 5]]


def test_a_gpu_on_the_machine_changes_nothing(monkeypatch):
    monkeypatch.setattr("sweeps.planning.has_gpu", lambda: True)
    assert load_spec(SPEC).engine.device == "cpu"
    assert make_plan(load_spec(SPEC)).launches == 14
    with pytest.raises(InputError, match=r"engine\.start_method: 'fork' works on the CPU only and this machine has"):
        make_plan(load_spec(SPEC, ["engine.device=auto"]))
    assert make_plan(load_spec(SPEC, ["engine.device=auto", "engine.start_method=spawn"])).launches == 14
