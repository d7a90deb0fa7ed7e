"""Verdicts on reported cases, with the numbers of the reports they come from."""

from __future__ import annotations

import pytest
from explained import CHAIN_3, ONE_STEP, evidence, other, verdicts

from results.explain.explanation import explain


def test_one_step_is_limited_by_its_config() -> None:
    explanation, answers = verdicts(
        {**ONE_STEP, "accept_length": 1.74, "tp_size": 1}, {**ONE_STEP, "accept_length": 1.74, "tp_size": 8}
    )
    assert answers == ("yes", "no", "no")
    text = explanation.cause("config").evidence
    assert "(1,1,8) runs as (1,1,2)" in text
    assert "ceiling 2" in text
    assert "0.74" in text
    assert "num_steps 3 or more" in explanation.cause("config").next
    assert other(explanation, "head_or_weights") == "no"


def test_one_step_alone_is_enough() -> None:
    explanation, answers = verdicts({**ONE_STEP, "accept_length": 1.74})
    assert answers == ("yes", "no", "no")
    assert explanation.gap is not None
    assert explanation.gap["suspect"]["ceiling"] == 2
    assert explanation.gap["suspect"]["p1"] == pytest.approx(0.74)


@pytest.mark.parametrize("asked", [(1, 1, 16), (1, 1, 2), (1, 1, 4)])
def test_members_of_the_same_kind(asked: tuple[int, int, int]) -> None:
    triple = dict(zip(("num_steps", "eagle_topk", "num_draft_tokens"), asked, strict=True))
    for length in (1.65, 1.9):
        assert verdicts({**triple, "accept_length": length, "tp_size": 8})[1] == ("yes", "no", "no")


def test_two_steps_accepted_nearly_always_are_limited_too() -> None:
    assert verdicts({"num_steps": 2, "eagle_topk": 1, "num_draft_tokens": 2, "accept_length": 2.7})[1][0] == "yes"
    _, answers = verdicts({**CHAIN_3, "acceptance_by_position": [0.95, 0.9, 0.85]})
    assert answers == ("yes", "no", "no")


def test_a_healthy_chain_is_not_limited() -> None:
    explanation, answers = verdicts({**CHAIN_3, "accept_length": 2.77, "acceptance_by_position": [0.751, 0.567, 0.453]})
    assert answers == ("no", "no", "no")
    assert other(explanation, "metric") is None


def test_destroyed_first_position_is_layout_or_weights() -> None:
    collapsed = {**CHAIN_3, "acceptance_by_position": [0.036, 0.0006, 0.0]}
    explanation, answers = verdicts({**collapsed, "tp_size": 1}, {**collapsed, "tp_size": 8})
    assert answers == ("no", "undecided", "no")
    assert "layout or weights" in explanation.cause("layout").evidence
    assert "probe" in explanation.cause("layout").next
    assert other(explanation, "head_or_weights") == "undecided"


def test_drafts_and_accepted_give_the_accept_length() -> None:
    explanation, answers = verdicts(
        {**CHAIN_3, "accepted": 341, "drafts": 28281, "acceptance_by_position": [0.036, 0.0006, 0.0]}
    )
    assert answers == ("no", "undecided", "no")
    assert explanation.gap is not None
    assert explanation.gap["suspect"]["accept_length"] == pytest.approx(1 + 3 * 341 / 28281, abs=1e-6)
    assert "ceiling 4" in explanation.cause("config").evidence


def test_destroyed_at_one_large_tp_only_is_open_three_ways() -> None:
    explanation, answers = verdicts({**CHAIN_3, "accept_length": 1.05, "tp_size": 8})
    assert answers == ("no", "undecided", "undecided")
    assert "tp 1" in explanation.cause("parallelism").next


def test_falling_with_tp_is_parallelism() -> None:
    explanation, answers = verdicts(
        {**CHAIN_3, "accept_length": 2.9, "tp_size": 1},
        {**CHAIN_3, "accept_length": 2.3, "tp_size": 2},
        {**CHAIN_3, "accept_length": 1.4, "tp_size": 8},
    )
    assert answers == ("no", "no", "yes")
    assert explanation.cause("parallelism").share == pytest.approx(1.5)
    assert "falling" in explanation.cause("parallelism").evidence


def test_destroyed_by_tp_alone_does_not_blame_the_layout() -> None:
    _, answers = verdicts(
        {**CHAIN_3, "accept_length": 2.9, "tp_size": 1}, {**CHAIN_3, "accept_length": 1.02, "tp_size": 8}
    )
    assert answers == ("no", "no", "yes")


@pytest.mark.parametrize("lengths", [(2.60, 2.58, 2.63), (2.26, 2.24, 2.30), (2.56, 2.50, 2.61), (3.1, 3.1, 3.1)])
def test_tp_invariance_is_the_expected_result(lengths: tuple[float, float, float]) -> None:
    measured = [
        {**CHAIN_3, "accept_length": length, "tp_size": tp, "num_prompts": 80}
        for tp, length in zip((1, 2, 4), lengths, strict=True)
    ]
    explanation, answers = verdicts(*measured)
    assert answers[2] == "no"
    assert "no TP effect" in explanation.cause("parallelism").evidence


def test_a_middling_tp_difference_is_undecided_without_counts_and_decided_with_them() -> None:
    first, second = {**CHAIN_3, "tp_size": 1}, {**CHAIN_3, "tp_size": 4}
    assert verdicts({**first, "accept_length": 2.6}, {**second, "accept_length": 2.4})[1][2] == "undecided"
    counted = {"verify_steps": 20000}
    _, answers = verdicts({**first, **counted, "accept_length": 2.6}, {**second, **counted, "accept_length": 2.4})
    assert answers[2] == "yes"
    few = {"verify_steps": 60}
    _, answers = verdicts({**first, **few, "accept_length": 2.6}, {**second, **few, "accept_length": 2.2})
    assert answers[2] == "undecided"


def test_trained_on_other_taps_than_fed_is_a_layout_mismatch() -> None:
    explanation, answers = verdicts(
        {
            **CHAIN_3,
            "target_class": "llama",
            "num_layers": 61,
            "layout_ids": [-1, 2, 30],
            "trained_taps": [2, 30, 58],
            "accept_length": 2.2,
        }
    )
    assert answers[1] == "yes"
    assert "layout mismatch" in explanation.cause("layout").evidence
    assert "[embedding, 3, 31]" in explanation.cause("layout").evidence


def test_the_origin_story() -> None:
    row = {
        **ONE_STEP,
        "target_class": "LlamaForCausalLM",
        "num_layers": 62,
        "layout_ids": [2, 30, 58],
        "trained_taps": [0, 3, 31],
        "accept_length": 1.74,
        "tp_size": 8,
        "output_throughput": 55.0,
        "baseline_throughput": 90.0,
    }
    explanation, answers = verdicts({**row, "role": "suspect"}, {**row, "tp_size": 1, "role": "control"})
    assert answers == ("yes", "yes", "no")
    assert explanation.gap is not None
    assert explanation.gap["throughput"]["speedup"] == pytest.approx(55 / 90, abs=1e-4)


def test_right_taps_and_a_destroyed_first_position_blame_the_head() -> None:
    explanation, answers = verdicts(
        {**CHAIN_3, "layout_taps": [2, 30, 58], "trained_taps": [2, 30, 58], "accept_length": 1.03}
    )
    assert answers == ("no", "no", "no")
    assert other(explanation, "head_or_weights") == "yes"


def test_a_tenth_lower_is_a_plausible_shift_not_a_wrong_layout() -> None:
    kimi = {**CHAIN_3, "target_class": "deepseek_v2", "num_layers": 61, "sglang_version": "0.5.9"}
    for names in ({}, {"role": "suspect"}):
        explanation, answers = verdicts(
            {**kimi, **names, "layout_ids": [2, 30, 58], "accept_length": 2.9},
            {**kimi, "layout_ids": [1, 29, 57], "accept_length": 3.0, **({"role": "reference"} if names else {})},
        )
        assert answers[1] == "undecided"
        assert other(explanation, "id_shift") == "yes"
        assert "shift by one layer is plausible" in evidence(explanation, "id_shift")
        assert "[3, 31, 59]" in evidence(explanation, "id_shift")


def test_the_same_ids_before_and_after_the_convention_changed() -> None:
    kimi = {**CHAIN_3, "target_class": "deepseek_v2", "num_layers": 61, "layout_ids": [2, 30, 58]}
    explanation, answers = verdicts(
        {**kimi, "sglang_version": "0.5.9", "accept_length": 2.9, "role": "suspect"},
        {**kimi, "sglang_version": "0.5.23", "accept_length": 3.0, "role": "reference"},
    )
    assert answers[1] == "undecided"
    assert other(explanation, "id_shift") == "yes"


def test_a_wholly_wrong_layout_against_a_reference() -> None:
    llama = {**CHAIN_3, "target_class": "llama", "num_layers": 61}
    explanation, answers = verdicts(
        {**llama, "layout_ids": [8, 24, 40], "accept_length": 1.1, "role": "suspect"},
        {**llama, "layout_ids": [1, 29, 57], "accept_length": 2.9, "role": "reference"},
    )
    assert answers == ("no", "yes", "no")
    assert explanation.cause("layout").share == pytest.approx(1.8)
    assert other(explanation, "id_shift") is None


def test_two_groups_at_once_need_a_corner_and_split_with_it() -> None:
    suspect = {**ONE_STEP, "accept_length": 1.3, "layout_taps": [3, 31, 59], "role": "suspect"}
    reference = {**CHAIN_3, "accept_length": 3.0, "layout_taps": [0, 3, 31], "role": "reference"}
    explanation, answers = verdicts(suspect, reference)
    assert explanation.cause("layout").share is None
    assert answers[1] == "undecided"
    assert "to split the gap" in explanation.cause("layout").next or "probe" in explanation.cause("layout").next
    layout_only = {**suspect, "layout_taps": [0, 3, 31], "accept_length": 1.8, "role": "control"}
    config_only = {**CHAIN_3, "accept_length": 1.4, "layout_taps": [3, 31, 59], "role": "control"}
    explanation, answers = verdicts(suspect, reference, layout_only, config_only)
    shares = [verdict.share for verdict in explanation.verdicts]
    assert shares == [pytest.approx(0.65), pytest.approx(1.05), 0.0]
    assert answers == ("yes", "yes", "no")
    assert explanation.gap is not None
    assert sum(share or 0 for share in shares) == pytest.approx(explanation.gap["value"])


def test_the_ladder_places_the_loss() -> None:
    explanation, answers = verdicts(
        {"label": "offline", "role": "control", "acceptance_by_position": [0.75, 0.56, 0.42]},
        {**CHAIN_3, "accept_length": 2.6, "tp_size": 1},
        {**CHAIN_3, "accept_length": 1.3, "tp_size": 8},
    )
    assert answers == ("no", "no", "yes")
    assert explanation.gap is not None
    ladder = explanation.gap["ladder"]
    assert [rung["rung"] for rung in ladder] == ["offline", "tp 1", "tp 8"]
    assert ladder[0]["accept_length"] == pytest.approx(2.73)
    assert ladder[2]["lost"] == pytest.approx(1.3)


def test_nothing_to_go_by() -> None:
    explanation, answers = verdicts({"label": "empty"})
    assert answers == ("undecided",) * 3
    assert explanation.cause("config").next
    assert explanation.gap is None
    assert explain([]).to_json()["verdicts"][0]["verdict"] == "undecided"


def test_json_schema() -> None:
    content = verdicts({**ONE_STEP, "accept_length": 1.74})[0].to_json()
    assert set(content) == {"schema", "verdicts", "other", "gap"}
    assert [row["cause"] for row in content["verdicts"]] == ["config", "layout", "parallelism"]
    assert all(set(row) == {"cause", "verdict", "share", "interval", "evidence", "next"} for row in content["verdicts"])
    assert all(set(row) == {"kind", "verdict", "evidence"} for row in content["other"])


def test_a_layout_mismatch_needs_no_measurement() -> None:
    row = {"target_class": "llama", "num_layers": 61, "layout_ids": [-1, 2, 30], "trained_taps": [3, 31, 59]}
    explanation, answers = verdicts(row)
    assert answers[1] == "yes"
    assert explanation.gap is None


def test_a_gap_between_rows_of_which_nothing_differs_is_not_explained_away() -> None:
    row = {"num_steps": 5, "eagle_topk": 1, "num_draft_tokens": 6, "tp_size": 1}
    explanation, answers = verdicts({**row, "accept_length": 2.6}, {**row, "accept_length": 5.2})
    assert answers == ("no", "undecided", "no")
    assert "layout_taps" in explanation.cause("layout").next


def test_what_a_reference_leaves_out_is_neither_a_difference_nor_fixed() -> None:
    suspect = {**CHAIN_3, "accept_length": 1.2, "tp_size": 8, "layout_taps": [2, 30, 58], "role": "suspect"}
    explanation, answers = verdicts(suspect, {"accept_length": 2.9, "tp_size": 1, "role": "reference"})
    assert explanation.gap is not None
    assert explanation.gap["differing"] == ["parallelism"]
    assert explanation.gap["unsure"] == ["config", "layout"]
    assert answers == ("no", "undecided", "undecided")


def test_a_tree_without_a_histogram_is_not_called_healthy() -> None:
    tree = {"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8}
    _, answers = verdicts({**tree, "accept_length": 3.0, "tp_size": 1})
    assert answers == ("no", "undecided", "no")
    _, answers = verdicts({**tree, "accept_length": 3.0, "histogram": [20, 20, 20, 20, 10, 10]})
    assert answers == ("no", "no", "no")
