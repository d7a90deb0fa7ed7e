"""Our rules against SGLang's own resolution of the same command lines."""

from __future__ import annotations

from typing import Any

import pytest
from rule_facts import CASES, FIXED, context, setting

from search_spaces.config import Setting
from search_spaces.engine_args import EngineArgs
from search_spaces.flag_rules import flag_changes
from search_spaces.rulings import Illegal, Legal
from search_spaces.sglang_rules import resolve_setting

# SGLang's resolution lets these through; the server dies later, or at a check that it runs after resolving
DIES_LATER = {"tree_pool", "tokens_below_steps"}
LATER_CHECKS = {"pipeline": "pipeline_parallel", "no tokens": "all_or_none"}


def ours(name: str, version: str) -> Legal | Illegal:
    numbers, flags = CASES[name]
    args = {**FIXED, **{flag: value for flag, value in flags.items() if flag != "tp_size"}}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    where = context(num_layers=8, version=version, target_config=heads, draft_config=heads, **args)
    asked: Setting = setting(*numbers, tp_size=int(str(flags.get("tp_size", 1))))
    return resolve_setting(asked, where)


@pytest.mark.parametrize("name", CASES)
def test_sglang_resolves_as_we_predict(name: str, sglang_says: dict[str, Any]) -> None:
    theirs, ruling = sglang_says["resolved"][name], ours(name, sglang_says["version"])
    if "error" in theirs:
        assert isinstance(ruling, Illegal), theirs
        assert ruling.rule not in DIES_LATER
    elif isinstance(ruling, Illegal):
        assert ruling.rule in DIES_LATER or LATER_CHECKS.get(name) == ruling.rule, (theirs, ruling)
    else:
        triple = ruling.effective.triple
        assert triple is not None
        assert [triple.num_steps, triple.eagle_topk, triple.num_draft_tokens] == theirs["triple"]


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("grid")])
def test_sglang_changes_the_flags_that_we_predict(name: str, sglang_says: dict[str, Any]) -> None:
    theirs = sglang_says["resolved"][name]
    if "error" in theirs:
        return
    args = EngineArgs({**FIXED, **CASES[name][1]})
    changes = flag_changes(args, theirs["triple"][1], sglang_says["version"])
    unset = {
        "max_running_requests": None,
        "enable_mixed_chunk": False,
        "disable_overlap_schedule": False,
        "page_size": 1,
        "speculative_adaptive": False,
    }
    expected = {**unset, **{flag: args.flags[flag] for flag in unset if flag in args.flags}}
    expected |= {change.flag: change.value for change in changes}
    assert expected == {flag: theirs[flag] for flag in unset}


def test_the_grid_covers_every_outcome(sglang_says: dict[str, Any]) -> None:
    rules = {ruling.rule for name in CASES if isinstance(ruling := ours(name, sglang_says["version"]), Illegal)}
    assert rules == {
        "adaptive_steps",
        "all_or_none",
        "backend_speculation",
        "page_size_topk",
        "pipeline_parallel",
        "rejection_sampling_topk",
        "standalone_dp_attention",
        "tokens_below_steps",
        "tree_pool",
    }
