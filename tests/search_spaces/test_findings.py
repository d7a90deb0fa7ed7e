"""Static findings about layouts and classes, case by case, with the values that SGLang 0.5.23 gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pair_checks import IDS, KIMI, KIMI_DRAFT, LLAMA_61, QWEN3, SPARSE, check, finding, ids, with_ids
from small_checkpoints import DRAFT, LLAMA, draft_tensors
from tiny_models import TinyPair

from search_spaces.checkpoints import read_draft, read_target
from search_spaces.findings import check_pair


def test_a_sound_pair_has_no_errors_and_a_resolved_layout(tmp_path: Path) -> None:
    report = check(tmp_path, LLAMA, with_ids(DRAFT, 1, 15, 28), draft_tensors(), SPARSE)
    assert not ids(report)
    assert not ids(report, "warning") - {"auto-triple"}
    text = report.to_json()
    assert text["schema"] == 1
    assert text["layout"] == {"taps": [2, 16, 29], "ids": [1, 15, 28], "source": "eagle_config"}
    assert (text["effective"]["num_steps"], text["effective"]["eagle_topk"]) == (5, 4)
    assert text["effective"]["num_draft_tokens"] == 8
    assert finding(report, "same-as-default").severity == "info"


def test_explicit_default_ids_are_off_by_one(tmp_path: Path) -> None:
    null = check(tmp_path / "null", QWEN3, DRAFT)
    copy = check(tmp_path / "copy", QWEN3, with_ids(DRAFT, 2, 18, 33))
    same = check(tmp_path / "same", QWEN3, with_ids(DRAFT, 1, 17, 32))
    assert (null.layout_taps, copy.layout_taps, same.layout_taps) == ((2, 18, 33), (3, 19, 34), (2, 18, 33))
    assert (null.layout_source, copy.layout_source) == ("default", "eagle_config")
    shifted = finding(copy, "ids-shifted")
    assert "off by one" in shifted.message
    assert "[1, 17, 32] or null" in shifted.mend
    assert "same-as-default" in ids(same, "info")
    assert "[2, 18, 33]" in finding(null, "ids-missing").message


@pytest.mark.parametrize(
    ("layer_ids", "version", "taps"),
    [
        ((1, 29, 57), "0.5.23", (2, 30, 58)),
        ((2, 30, 58), "0.5.23", (2, 30, 58)),
        ((2, 30, 58), "0.5.9", (3, 31, 59)),
    ],
)
def test_two_id_conventions_on_kimi(
    tmp_path: Path, layer_ids: tuple[int, ...], version: str, taps: tuple[int, ...]
) -> None:
    report = check(tmp_path, KIMI, with_ids(KIMI_DRAFT, *layer_ids), version=version)
    assert report.layout_taps == taps


def test_minus_one_is_the_embedding_on_one_class_and_nothing_on_the_other(tmp_path: Path) -> None:
    llama = check(tmp_path / "llama", LLAMA_61, with_ids(DRAFT, -1, 2, 30))
    assert llama.layout_taps == (0, 3, 31)
    assert "includes the embedding output" in finding(llama, "embedding-tap").message
    assert "ids-not-captured" not in ids(llama)
    kimi = check(tmp_path / "kimi", KIMI, with_ids(KIMI_DRAFT, -1, 2, 30))
    refused = finding(kimi, "ids-not-captured")
    assert refused.severity == "error"
    assert "-1 never matches on this class" in refused.message
    assert "2 of 3 states would be captured" in refused.message
    assert "written 0 here" in refused.mend


def test_ids_at_the_top_level_of_a_draft(tmp_path: Path) -> None:
    three = check(tmp_path / "three", KIMI, {**KIMI_DRAFT, IDS: [8, 24, 40]})
    top = finding(three, "ids-at-top-level")
    assert top.severity == "error"
    assert "key is at top level" in top.message.replace(f"{IDS} is", "key is")
    assert "will capture [2, 30, 58]" in top.message
    assert "silently" in top.message
    five = check(tmp_path / "five", KIMI, {**KIMI_DRAFT, IDS: [8, 16, 24, 32, 40]})
    top = finding(five, "ids-at-top-level")
    assert "fc expects 5 x 7168, gets 3 x 7168" in top.message
    assert "fc-built-width" in ids(five)
    bare = check(tmp_path / "bare", KIMI, {IDS: [8, 24, 40], "hidden_size": 7168})
    assert {"ids-at-top-level", "draft-class"} <= ids(bare)


def test_top_level_ids_that_equal_the_default_are_only_a_warning(tmp_path: Path) -> None:
    report = check(tmp_path, KIMI, {**KIMI_DRAFT, IDS: [2, 30, 58]})
    assert finding(report, "ids-at-top-level").severity == "warning"


@pytest.mark.parametrize(
    ("extra", "place"),
    [
        ({"eagle_config": {"aux_hidden_state_layer_ids": [8, 24, 40]}}, "eagle_config.aux_hidden_state_layer_ids"),
        ({"text_config": {"eagle_config": {IDS: [8, 24, 40]}}}, f"text_config.eagle_config.{IDS}"),
        ({"eagle_aux_layer_ids": [8, 24, 40]}, "eagle_aux_layer_ids"),
        ({"dflash_config": {"target_layer_ids": [8, 24, 40]}}, "dflash_config.target_layer_ids"),
    ],
)
def test_other_slips_of_the_same_kind(tmp_path: Path, extra: dict[str, Any], place: str) -> None:
    slip = finding(check(tmp_path, KIMI, {**KIMI_DRAFT, **extra}), "ids-misplaced")
    assert slip.severity == "error"
    assert place in slip.message


def test_eagle_config_that_is_no_mapping(tmp_path: Path) -> None:
    assert "eagle-config-unreadable" in ids(check(tmp_path, KIMI, {**KIMI_DRAFT, "eagle_config": [2, 30, 58]}))


@pytest.mark.parametrize(
    ("layers", "words"),
    [(2, ("[2, 1, -1]", "unordered")), (4, ("[2, 2, 1]", "duplicate and unordered")), (6, ("[2, 3, 3]", "duplicate"))],
)
def test_default_of_a_tiny_target_collides(tmp_path: Path, layers: int, words: tuple[str, str]) -> None:
    report = check(tmp_path, {**LLAMA, "num_hidden_layers": layers}, DRAFT)
    collision = finding(report, "default-collides")
    assert all(word in collision.message for word in words)
    assert "give ids" in collision.mend


def test_seven_layers_are_enough_for_the_default(tmp_path: Path) -> None:
    report = check(tmp_path, {**LLAMA, "num_hidden_layers": 7}, DRAFT)
    assert report.layout_taps == (2, 3, 4)
    assert "default-collides" not in ids(report)


@pytest.mark.parametrize(
    ("layer_ids", "id"),
    [
        ((1, 1, 5), "ids-not-captured"),
        ((1, 5, 99), "ids-not-captured"),
        ((), "ids-not-captured"),
        ((1, 5, 31), "ids-not-captured"),
    ],
)
def test_ids_that_cannot_be_captured(tmp_path: Path, layer_ids: tuple[int, ...], id: str) -> None:
    assert id in ids(check(tmp_path, LLAMA, with_ids(DRAFT, *layer_ids)))


def test_order_is_lost(tmp_path: Path) -> None:
    report = check(tmp_path, LLAMA, with_ids(DRAFT, 28, 1, 15))
    assert report.layout_taps == (2, 16, 29)
    assert "order is lost" in finding(report, "ids-unordered").message


def test_tap_one_on_kimi_is_written_out_of_order(tmp_path: Path) -> None:
    report = check(tmp_path, KIMI, with_ids(KIMI_DRAFT, 4, 1, 6))
    assert report.layout_taps == (1, 4, 6)
    assert "ids-unordered" not in ids(report, "warning")


def test_unknown_target_class_is_said_and_the_rest_still_checked(tmp_path: Path) -> None:
    target = {**LLAMA, "architectures": ["MambaForCausalLM"]}
    report = check(tmp_path, target, DRAFT, draft_tensors(), [0] * 32000)
    assert {"target-class", "d2t-identity"} <= ids(report)
    assert report.layout_taps is None
    assert report.to_json()["layout"]["taps"] is None


def test_errors_come_first(tmp_path: Path) -> None:
    report = check(tmp_path, LLAMA, DRAFT, environment={"SGLANG_SIMULATE_ACC_LEN": "2"})
    order = ["error", "warning", "info"]
    severities = [order.index(f.severity) for f in report.findings]
    assert severities == sorted(severities)
    assert report.has_errors


def test_a_real_pair_has_no_errors(tiny_pair: TinyPair) -> None:
    report = check_pair(
        read_target(tiny_pair.target),
        read_draft(tiny_pair.draft),
        tp_size=2,
        sglang_version="0.5.23",
        flags={},
        environment={},
    )
    assert not ids(report), [f.message for f in report.findings]
    assert report.layout_taps == (2, 4, 5)
    assert report.layout_source == "default"


def test_a_draft_class_of_a_release_we_have_not_read_is_only_a_warning(tmp_path: Path) -> None:
    draft = {**DRAFT, "architectures": ["Qwen3ForCausalLMEagle3"]}
    assert finding(check(tmp_path / "now", LLAMA, draft), "draft-class").severity == "error"
    assert finding(check(tmp_path / "later", LLAMA, draft, version="0.9.0"), "draft-class").severity == "warning"
