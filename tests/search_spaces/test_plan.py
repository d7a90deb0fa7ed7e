from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_facts import context

from search_spaces.errors import InputError
from search_spaces.plan import plan_space
from search_spaces.ready_spaces import load_ready_space, ready_space_names
from search_spaces.rulings import Illegal, Legal
from search_spaces.sglang_rules import resolve_setting
from search_spaces.space import SearchSpace


def space(**changed: Any) -> SearchSpace:
    values: dict[str, Any] = {
        "layout": ("default",),
        "num_steps": (1, 2, 3),
        "eagle_topk": (1,),
        "num_draft_tokens": (2, 4, 8, 16),
        "tp_size": (1,),
    }
    return SearchSpace(**(values | changed))


def test_many_names_for_the_same_run() -> None:
    plan = plan_space(space(), context())
    assert (plan.requested, plan.legal, plan.effective, plan.launches) == (12, 12, 3, 4)
    triples = [str(group.effective.triple) for group in plan.groups]
    assert triples == ["(1,1,2)", "(2,1,3)", "(3,1,4)"]
    assert [len(group.settings) for group in plan.groups] == [4, 4, 4]
    assert plan_space(space(), context(), repeats=3).launches == 10


def test_the_grid_of_sglangs_own_script() -> None:
    plan = plan_space(load_ready_space("sglang_default_grid"), context(aux_ids=(0, 2, 30)))
    assert (plan.requested, plan.legal, plan.effective, plan.launches) == (80, 52, 36, 37)


def test_illegal_rows_carry_the_numbers() -> None:
    plan = plan_space(space(num_steps=(1, 2), eagle_topk=(4, 2, 8), num_draft_tokens=(8, 10)), context())
    rows = {(row.num_steps, row.eagle_topk, row.num_draft_tokens): (row.rule, row.message) for row in plan.illegal}
    assert rows[(1, 4, 8)] == ("tree_pool", "need n-1=7 > pool 4")
    assert rows[(2, 2, 8)] == ("tree_pool", "need n-1=7 > pool 6")
    assert rows[(1, 8, 10)] == ("tree_pool", "need n-1=9 > pool 8")
    assert (2, 4, 8) not in rows


def test_json_has_the_documented_keys() -> None:
    mixed = space(
        layout=("default", "shipped", "7,3", "0,3,7"), eagle_topk=(1, 4), num_draft_tokens=(4, 8), tp_size=(1, 2, 3)
    )
    plan = json.loads(json.dumps(plan_space(mixed, context(num_layers=8, aux_ids=(1, 3, 4)), repeats=2).to_json()))
    assert plan["schema"] == 1
    assert plan["requested"] == 144
    assert sum(row["settings"] for row in plan["illegal"]) == plan["requested"] - plan["legal"]
    assert plan["launches"] == 2 + 2 * plan["effective"]
    assert {row["rule"] for row in plan["illegal"]} == {"layout_not_expressible", "tp_divides_heads", "tree_pool"}
    for row in plan["illegal"]:
        assert set(row) >= {"num_steps", "eagle_topk", "num_draft_tokens", "tp_size", "rule", "message"}
        assert (row["layout"] is None) == (row["rule"] != "layout_not_expressible")
    numbers = {"num_steps", "eagle_topk", "num_draft_tokens"}
    first = plan["adjusted"][0]
    assert first["requested"] == {"num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 4}
    assert first["effective"] == {"num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 2}
    assert all(set(row["requested"]) == set(row["effective"]) == numbers for row in plan["adjusted"])
    assert {row["rule"] for row in plan["adjusted"]} == {"topk1_tokens"}
    rows = {row["name"]: row for row in plan["layouts"]}
    assert rows["default"] == {
        "name": "default",
        "taps": [2, 4, 5],
        "ids": None,
        "expressible": True,
        "reason": None,
        "same_as": None,
    }
    assert (rows["shipped"]["ids"], rows["shipped"]["same_as"]) == ([1, 3, 4], "default")
    assert (rows["0,3,7"]["taps"], rows["0,3,7"]["ids"]) == ([0, 3, 7], [-1, 2, 6])
    assert (rows["7,3"]["expressible"], rows["7,3"]["ids"]) == (False, None)
    assert rows["7,3"]["reason"] == "order is lost: 7,3 would be fed as 3,7"


def test_rows_do_not_repeat_what_a_rule_does_not_look_at() -> None:
    wide = space(layout=("default", "0,3,7", "1,2,3"), eagle_topk=(4,), num_steps=(1,), num_draft_tokens=(8,))
    plan = plan_space(wide, context())
    assert [(row.settings, row.layout) for row in plan.illegal] == [(3, None)]


def test_unset_numbers_are_one_setting() -> None:
    none = space(num_steps=(None,), eagle_topk=(None,), num_draft_tokens=(None, 8))
    plan = plan_space(none, context())
    assert (plan.legal, plan.effective) == (1, 1)
    assert plan.adjusted[0].requested == (None, None, None)
    assert (plan.adjusted[0].effective, plan.adjusted[0].rule) == ((5, 4, 8), "auto_triple")
    assert plan.illegal[0].rule == "all_or_none"


def test_both_changes_of_numbers_are_told() -> None:
    plan = plan_space(space(num_steps=(3,), num_draft_tokens=(16,)), context(speculative_adaptive=True))
    assert [row.rule for row in plan.adjusted] == ["adaptive_steps"]


def test_baselines_share_the_fixed_flags() -> None:
    flags = (("page_size", (16,)), ("speculative_attention_mode", ("decode",)), ("stream_interval", (1, 4)))
    plan = plan_space(space(tp_size=(1, 3, 2), flags=flags), context())
    assert [(baseline.tp_size, baseline.flags) for baseline in plan.baselines] == [
        (1, (("page_size", 16),)),
        (2, (("page_size", 16),)),
    ]
    assert all(baseline.is_baseline for baseline in plan.baselines)


def test_nothing_legal_is_one_line_with_the_reasons() -> None:
    dead = plan_space(space(num_steps=(1,), eagle_topk=(4,), num_draft_tokens=(8, 16), tp_size=(1, 3)), context())
    with pytest.raises(InputError) as caught:
        dead.require_legal()
    assert str(caught.value) == (
        "space: none of the 4 settings is legal (tree_pool 2, tp_divides_heads 2); "
        "for example (1,4,8) at tp 1: need n-1=7 > pool 4"
    )
    assert dead.launches == 0
    plan_space(space(), context()).require_legal()


def test_repeats_are_checked() -> None:
    with pytest.raises(InputError, match="repeats: 0"):
        plan_space(space(), context(), repeats=0)


values = st.lists(st.one_of(st.none(), st.integers(1, 9)), min_size=1, max_size=4, unique=True).map(tuple)
LABELS = st.lists(st.sampled_from(["default", "shipped", "0,3,7", "2,4,5", "5,2"]), min_size=1, unique=True).map(tuple)


@settings(max_examples=60, deadline=None)
@given(values, values, values, st.sampled_from([(1,), (2, 1), (1, 3)]), LABELS)
def test_a_plan_is_the_sum_of_its_settings(s: Any, k: Any, n: Any, tp: Any, layout: Any) -> None:
    whole = space(num_steps=s, eagle_topk=k, num_draft_tokens=n, tp_size=tp, layout=layout)
    where = context(num_layers=8)
    plan = plan_space(whole, where)
    rulings = [resolve_setting(setting, where) for setting in whole.settings()]
    legal = [ruling.effective for ruling in rulings if isinstance(ruling, Legal)]
    assert (plan.requested, plan.legal, plan.effective) == (len(rulings), len(legal), len(set(legal)))
    assert len({effective.identity for effective in legal}) == plan.effective
    assert sum(row.settings for row in plan.illegal) == sum(isinstance(ruling, Illegal) for ruling in rulings)
    assert {group.effective for group in plan.groups} == set(legal)
    assert sum(len(group.settings) for group in plan.groups) == plan.legal
    assert len(plan.illegal) == len(
        {(r.layout, r.num_steps, r.eagle_topk, r.num_draft_tokens, r.tp_size) for r in plan.illegal}
    )


def test_ten_thousand_settings_take_a_fraction_of_a_second() -> None:
    wide = space(
        layout=("default", "shipped", "0,3,7", "1,2,3"),
        num_steps=tuple(range(1, 11)),
        eagle_topk=tuple(range(1, 11)),
        num_draft_tokens=tuple(range(2, 15)),
        tp_size=(1, 2),
    )
    assert wide.size == 10_400
    started = time.process_time()
    plan_space(wide, context()).to_json()
    assert time.process_time() - started < 0.5


def test_planning_imports_nothing_heavy() -> None:
    code = "import sys, search_spaces.plan; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    heavy = {"ray", "torch", "mlflow", "optuna", "pydantic", "numpy", "yaml", "sglang"}
    assert not heavy & set(done.stdout.split())


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ready_space_names())
def test_ready_spaces_have_something_to_run(name: str) -> None:
    plan = plan_space(load_ready_space(name), context(aux_ids=(0, 2, 30)))
    plan.require_legal()
    expected = {
        "chain_only": (8, 8, 8),
        "sglang_default_grid": (80, 52, 36),
        "small": (24, 24, 16),
        "wide": (1408, 896, 576),
    }
    assert (plan.requested, plan.legal, plan.effective) == expected[name]


def test_ready_spaces_by_name_only() -> None:
    assert set(ready_space_names()) == {"chain_only", "sglang_default_grid", "small", "wide"}
    with pytest.raises(InputError, match="legal: chain_only, sglang_default_grid, small, wide"):
        load_ready_space("../wide")


def test_every_ready_space_says_where_it_is_from() -> None:
    for path in (ROOT / "search_spaces" / "catalog").glob("*.yaml"):
        assert path.read_text(encoding="utf-8").startswith("# "), path.name
