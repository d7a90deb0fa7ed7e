"""Our dialects against the installed SGLang: its own `set_eagle3_layers_to_capture`, called on stand-in objects.

A release that adds a class, drops one, or changes a convention fails here.
"""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.dialects import Inexpressible, dialect_of, supported_architectures

# classes with the hook that never are the target of an EAGLE-3 draft
DRAFT_SUFFIXES = ("NextN", "MTP", "Eagle", "Eagle3", "AssistantForCausalLM")
NO_TARGETS = {"EmbeddingGemmaModel": "an embedding model: it generates nothing"}
UNREADABLE = {
    "MindSporeForCausalLM": "chosen by --model-impl on Ascend NPUs; its loop is in a vendor's package, not in SGLang",
}


def targets(says: dict[str, Any]) -> dict[str, Any]:
    return {
        name: facts
        for name, facts in says["classes"].items()
        if not name.endswith(DRAFT_SUFFIXES) and name not in NO_TARGETS and name not in UNREADABLE
    }


def test_every_target_class_is_in_the_table(sglang_says: dict[str, Any]) -> None:
    assert tuple(sorted(targets(sglang_says))) == supported_architectures(sglang_says["version"])


def test_nothing_with_the_hook_went_unread(sglang_says: dict[str, Any]) -> None:
    problems = {name for name, facts in sglang_says["classes"].items() if "problem" in facts}
    assert problems == set(UNREADABLE)
    assert [module for module, has_hook in sglang_says["unread"].items() if has_hook] == []


def test_capture_is_sglangs_for_all_layouts_up_to_eight_layers(sglang_says: dict[str, Any]) -> None:
    version = sglang_says["version"]
    seen = set()
    for name, facts in targets(sglang_says).items():
        dialect = dialect_of(name, version)
        if (dialect, facts["map"]) in seen:
            continue
        seen.add((dialect, facts["map"]))
        for num_layers, ids, theirs in sglang_says["maps"][facts["map"]]:
            ours = dialect.capture(None if ids is None else tuple(ids), num_layers)
            where = (name, num_layers, ids, theirs, ours)
            if theirs == "IndexError":
                assert any("IndexError" in problem for problem in ours.problems), where
                continue
            assert list(ours.taps) == theirs, where
            assert not any("IndexError" in problem for problem in ours.problems), where


def test_our_ids_are_captured_by_sglang_as_asked(sglang_says: dict[str, Any]) -> None:
    version = sglang_says["version"]
    for name, facts in targets(sglang_says).items():
        dialect = dialect_of(name, version)
        table = {(layers, tuple(ids)): got for layers, ids, got in sglang_says["maps"][facts["map"]] if ids is not None}
        layouts = {(layers, tuple(got)) for (layers, _), got in table.items() if got != "IndexError" and got}
        for num_layers, taps in layouts:
            ids = dialect.ids_for(taps, num_layers)
            if not isinstance(ids, Inexpressible):
                assert table[(num_layers, ids)] == list(taps), (name, num_layers, taps, ids)


@pytest.mark.parametrize("num_layers", [4, 8])
def test_what_we_call_inexpressible_sglang_never_captures(sglang_says: dict[str, Any], num_layers: int) -> None:
    version = sglang_says["version"]
    for name, facts in targets(sglang_says).items():
        dialect = dialect_of(name, version)
        for layers, ids, theirs in sglang_says["maps"][facts["map"]]:
            # as many states as ids, so the layout could be served: then we must be able to write it
            if layers == num_layers and ids is not None and theirs != "IndexError" and len(theirs) == len(ids):
                assert not isinstance(dialect.ids_for(tuple(theirs), layers), Inexpressible), (name, ids, theirs)


def test_which_packers_count_and_which_loops_end_late(sglang_says: dict[str, Any]) -> None:
    version = sglang_says["version"]
    for name, facts in targets(sglang_says).items():
        dialect = dialect_of(name, version)
        assert dialect.counts_states == facts["counts"], name
        assert dialect.last_tap == facts["behind_last"], name
