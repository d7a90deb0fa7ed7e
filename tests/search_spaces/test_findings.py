"""Static findings, case by case, with the values that SGLang 0.5.23 gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import DRAFT, LLAMA, draft_tensors, write_checkpoint
from tiny_models import TinyPair

from search_spaces.checkpoints import read_draft, read_target
from search_spaces.errors import InputError
from search_spaces.findings import CheckReport, Finding, check_pair

IDS = "eagle_aux_hidden_state_layer_ids"
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "model_type": "kimi_k2",
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "vocab_size": 163840,
        "rope_theta": 50000.0,
        "max_position_embeddings": 262144,
    },
}
KIMI_DRAFT = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 7168,
    "vocab_size": 163840,
    "draft_vocab_size": 163840,
    "rope_theta": 50000.0,
    "max_position_embeddings": 262144,
}
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "vocab_size": 151936}
LLAMA_61 = {**LLAMA, "num_hidden_layers": 61}
SPARSE = [i * 4 - i for i in range(32000)]
"""Offsets of a map onto every fourth target id."""


def check(
    folder: Path,
    target: Mapping[str, Any],
    draft: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, list[int]]] | None = None,
    d2t: list[int] | None = None,
    *,
    tp_size: int = 1,
    version: str = "0.5.23",
    flags: Mapping[str, bool | int | float | str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> CheckReport:
    return check_pair(
        read_target(write_checkpoint(folder / "target", target)),
        read_draft(write_checkpoint(folder / "draft", draft, tensors, d2t)),
        tp_size=tp_size,
        sglang_version=version,
        flags=flags or {},
        environment=environment or {},
    )


def finding(report: CheckReport, id: str) -> Finding:
    found = [finding for finding in report.findings if finding.id == id]
    assert len(found) == 1, [f.id for f in report.findings]
    assert "\n" not in found[0].message
    return found[0]


def ids(report: CheckReport, severity: str = "error") -> set[str]:
    return {finding.id for finding in report.findings if finding.severity == severity}


def with_ids(config: Mapping[str, Any], *layer_ids: int) -> dict[str, Any]:
    return {**config, "eagle_config": {IDS: list(layer_ids)}}


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


def test_fc_against_the_taps(tmp_path: Path) -> None:
    report = check(tmp_path / "five", LLAMA, with_ids(DRAFT, 1, 15, 28), draft_tensors(taps=5), SPARSE)
    assert "5 taps" in finding(report, "fc-width").message
    report = check(tmp_path / "odd", LLAMA, with_ids(DRAFT, 1, 15, 28), draft_tensors(hidden=5120), SPARSE)
    assert "no whole number of taps" in finding(report, "fc-width").message
    explicit = {**with_ids(DRAFT, 1, 15, 28), "num_aux_hidden_states": 4}
    report = check(tmp_path / "explicit", LLAMA, explicit, draft_tensors(), SPARSE)
    assert "num_aux_hidden_states" in finding(report, "fc-built-width").message
    report = check(tmp_path / "one", LLAMA, with_ids(DRAFT, 15), draft_tensors(taps=1), SPARSE)
    assert "skips fc" in finding(report, "fc-bypassed").message


def test_hidden_sizes(tmp_path: Path) -> None:
    small = {**DRAFT, "hidden_size": 2048}
    assert "hidden-size" in ids(check(tmp_path / "a", LLAMA, small))
    small = {**small, "target_hidden_size": 4096}
    tensors = draft_tensors(draft_hidden=2048)
    assert ids(check(tmp_path / "b", LLAMA, small, tensors, SPARSE)) == {"embedding-missing"}
    tensors["embed_tokens.weight"] = ("BF16", [128256, 2048])
    assert not ids(check(tmp_path / "c", LLAMA, small, tensors, SPARSE))
    assert "target-hidden-size" in ids(check(tmp_path / "d", LLAMA, {**small, "target_hidden_size": 5120}))


def test_vocabulary_map(tmp_path: Path) -> None:
    qwen = {**DRAFT, "vocab_size": 151936}
    missing = check(tmp_path / "missing", QWEN3, qwen, draft_tensors())
    assert finding(missing, "d2t-missing").severity == "error"
    zeros = check(tmp_path / "zeros", QWEN3, qwen, draft_tensors(), [0] * 32000)
    assert "identity map onto the first 32,000 ids" in finding(zeros, "d2t-identity").message
    equal = {**qwen, "draft_vocab_size": 151936}
    passed = check(tmp_path / "equal", QWEN3, equal, draft_tensors(vocab=151936), [0] * 151936)
    assert not ids(passed)
    without = check(tmp_path / "without", QWEN3, equal, draft_tensors(vocab=151936))
    assert not ids(without)


def test_other_faults_of_the_map(tmp_path: Path) -> None:
    def one(name: str, d2t: list[int], config: Mapping[str, Any] = DRAFT) -> set[str]:
        report = check(tmp_path / name, LLAMA, config, draft_tensors(), d2t)
        return {f.id for f in report.findings if f.id.startswith(("d2t", "output"))}

    assert one("short", SPARSE[:6054]) == {"d2t-length"}
    assert one("absolute", [i * 4 for i in range(32000)]) == {"d2t-out-of-range"}
    assert one("negative", [-1] * 32000) == {"d2t-out-of-range"}
    assert one("collides", [0, -1, *SPARSE[2:]]) == {"d2t-collides"}
    assert one("rows", SPARSE, {**DRAFT, "draft_vocab_size": 6054}) == {"d2t-length", "output-layer-rows"}
    assert one("fine", SPARSE) == set()


def test_draft_vocab_size_is_read_by_the_llama_draft(tmp_path: Path) -> None:
    bare = {key: value for key, value in DRAFT.items() if key != "draft_vocab_size"}
    assert "draft-vocab-size-missing" in ids(check(tmp_path / "a", LLAMA, bare))
    assert "draft-vocab-size-missing" not in ids(check(tmp_path / "b", LLAMA, {**bare, "draft_vocab_size": None}))


def test_short_position_range_warns(tmp_path: Path) -> None:
    target = {**QWEN3, "max_position_embeddings": 40960}
    short = {**DRAFT, "vocab_size": 151936, "max_position_embeddings": 2048}
    warned = finding(check(tmp_path / "a", target, short), "position-range")
    assert warned.severity == "warning"
    assert "2048" in warned.message
    assert "40960" in warned.message
    served_short = check(tmp_path / "b", target, short, flags={"context_length": 2048})
    assert "position-range" not in ids(served_short, "warning")
    absent = {key: value for key, value in short.items() if key != "max_position_embeddings"}
    assert "2048 positions" in finding(check(tmp_path / "c", target, absent), "position-range").message
    yarn = {**short, "rope_scaling": {"rope_type": "yarn", "factor": 20.0}}
    assert "position-range" not in ids(check(tmp_path / "d", target, yarn), "warning")


def test_rope(tmp_path: Path) -> None:
    other = {**DRAFT, "rope_theta": 10000.0}
    assert "500000" in finding(check(tmp_path / "a", LLAMA, other), "rope-theta").message
    nested = {key: value for key, value in DRAFT.items() if key != "rope_theta"}
    nested["rope_parameters"] = {"rope_theta": 500000.0, "rope_type": "default"}
    assert not {"rope-theta", "rope-scaling"} & ids(check(tmp_path / "b", LLAMA, nested), "warning")
    scaled = {**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    assert "llama3" in finding(check(tmp_path / "c", scaled, DRAFT), "rope-scaling").evidence


def test_norms_and_their_flags(tmp_path: Path) -> None:
    with_norm = {**draft_tensors(), "input_norm.weight": ("BF16", [12288])}
    skipped = finding(check(tmp_path / "a", LLAMA, DRAFT, with_norm, SPARSE), "norm-skipped")
    assert "tensor present, flag absent" in skipped.message
    assert "norm will be skipped" in skipped.message
    for place in ({"norm_before_fc": True}, {"eagle_config": {"norm_before_fc": True}}):
        report = check(tmp_path / f"b{len(str(place))}", LLAMA, {**DRAFT, **place}, with_norm, SPARSE)
        assert "norm-skipped" not in ids(report)
    report = check(tmp_path / "c", LLAMA, {**DRAFT, "norm_before_fc": True}, draft_tensors(), SPARSE)
    assert "norm-without-tensor" in ids(report)
    per_tap = {**draft_tensors(), **{f"fc_norm.{i}.weight": ("BF16", [4096]) for i in range(3)}}
    assert "norm-skipped" in ids(check(tmp_path / "d", LLAMA, DRAFT, per_tap, SPARSE))
    report = check(tmp_path / "e", LLAMA, {**DRAFT, "fc_norm": True}, per_tap, SPARSE)
    assert "norm-skipped" not in ids(report)
    assert "norm-output" in ids(report, "warning")
    report = check(tmp_path / "f", LLAMA, {**DRAFT, "fc_norm": True, "norm_output": True}, per_tap, SPARSE)
    assert "norm-output" not in ids(report, "warning")
    del per_tap["fc_norm.2.weight"]
    report = check(tmp_path / "g", LLAMA, {**DRAFT, "use_aux_norm": True}, per_tap, SPARSE)
    assert "2 of 3" in finding(report, "norm-without-tensor").message
    legacy = {**draft_tensors(), "aux_norm_low.weight": ("BF16", [4096])}
    assert "norm-skipped" in ids(check(tmp_path / "h", LLAMA, DRAFT, legacy, SPARSE))


def test_tensors_that_the_class_would_skip(tmp_path: Path) -> None:
    tensors = {**draft_tensors(), "output_norm.weight": ("BF16", [4096]), "fc.bias": ("BF16", [4096])}
    report = check(tmp_path / "a", LLAMA, DRAFT, tensors, SPARSE)
    assert finding(report, "tensors-ignored").evidence == "fc.bias, output_norm.weight"
    report = check(tmp_path / "b", LLAMA, {**DRAFT, "bias": True}, tensors, SPARSE)
    assert finding(report, "tensors-ignored").evidence == "output_norm.weight"


def test_layers_of_the_draft(tmp_path: Path) -> None:
    report = check(tmp_path / "a", LLAMA, {**DRAFT, "num_hidden_layers": 32}, draft_tensors(), SPARSE)
    assert "layers [0]" in finding(report, "draft-layers").message
    assert "draft-layers" in ids(check(tmp_path / "b", KIMI, {**KIMI_DRAFT, "num_hidden_layers": 2}))


def test_plain_model_as_a_draft(tmp_path: Path) -> None:
    report = check(tmp_path, LLAMA, {**DRAFT, "architectures": ["LlamaForCausalLM"]})
    assert "LlamaForCausalLMEagle3" in finding(report, "draft-class").mend


def test_precision(tmp_path: Path) -> None:
    report = check(tmp_path / "a", LLAMA, {**DRAFT, "dtype": "float16"})
    assert "dtype" in ids(report, "warning")
    packed = {**draft_tensors(), "midlayer.mlp.up_proj.weight": ("F8_E4M3", [8, 8])}
    assert "quantisation-undeclared" in ids(check(tmp_path / "b", LLAMA, DRAFT, packed, SPARSE))
    report = check(tmp_path / "c", LLAMA, DRAFT, flags={"quantization": "fp8"})
    assert "quantisation-inherited" in ids(report, "warning")


def test_serving_flags(tmp_path: Path) -> None:
    draft = with_ids(DRAFT, 1, 15, 28)

    def one(name: str, **flags: bool | int | str) -> CheckReport:
        return check(tmp_path / name, LLAMA, draft, draft_tensors(), SPARSE, flags=flags)

    def triple(s: int, k: int, n: int) -> dict[str, int]:
        return {"speculative_num_steps": s, "speculative_eagle_topk": k, "speculative_num_draft_tokens": n}

    adjusted = one("adjusted", **triple(1, 1, 8))
    assert adjusted.to_json()["effective"]["num_draft_tokens"] == 2
    assert adjusted.to_json()["effective"]["ceiling"] == 2
    assert "(1,1,8) runs as (1,1,2)" in finding(adjusted, "topk1-tokens").message
    pool = one("pool", **triple(1, 4, 8))
    assert "need n-1=7 > pool 4" in finding(pool, "tree-pool").message
    assert pool.effective is None
    assert pool.to_json()["effective"] is None
    assert "give all three or none" in finding(one("part", speculative_eagle_topk=4), "all-or-none").message
    assert ids(one("mha", attention_backend="trtllm_mha", **triple(3, 4, 8))) == {"backend-topk"}
    mla = one("mla", attention_backend="trtllm_mla", page_size=64, **triple(3, 4, 8))
    assert ids(mla) == {"page-size-topk"}
    assert not ids(one("fa3", attention_backend="fa3", page_size=64, **triple(3, 4, 8)))
    assert "last stage" in finding(one("pp", pp_size=2), "pipeline-parallel").message
    assert "algorithm" in ids(one("eagle", speculative_algorithm="EAGLE"))
    assert "48" in finding(one("cap"), "running-requests-cap").message
    assert "running-requests-cap" not in ids(one("set", max_running_requests=256), "info")


def test_heads_must_divide_over_tp(tmp_path: Path) -> None:
    target = {**LLAMA, "num_attention_heads": 32, "num_key_value_heads": 8}
    assert not ids(check(tmp_path / "a", target, DRAFT, tp_size=16))
    assert "tp-divides-heads" in ids(check(tmp_path / "b", target, DRAFT, tp_size=3))


@pytest.mark.parametrize(
    ("variable", "value", "id"),
    [
        ("SGLANG_SIMULATE_ACC_LEN", "3.24", "simulated-acceptance"),
        ("SGLANG_IS_IN_CI", "true", "ci-mode"),
        ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "1", "simulated-experts"),
    ],
)
def test_variables_that_falsify(tmp_path: Path, variable: str, value: str, id: str) -> None:
    report = check(tmp_path / "on", LLAMA, DRAFT, environment={variable: value})
    assert id in ids(report)
    assert f"{variable}={value}" in finding(report, id).evidence
    for off in ("", "0", "-1", "false"):
        assert id not in ids(check(tmp_path / f"off{off}", LLAMA, DRAFT, environment={variable: off}))


def test_flags_that_replace_the_drafts_config(tmp_path: Path) -> None:
    override = '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}'
    report = check(tmp_path, LLAMA, DRAFT, flags={"json_model_override_args": override})
    assert (report.layout_taps, report.layout_source) == ((2, 16, 29), "json_model_override_args")
    with pytest.raises(InputError, match="json_model_override_args"):
        check(tmp_path, LLAMA, DRAFT, flags={"json_model_override_args": "{"})
    (tmp_path / "other.json").write_text('{"hidden_size": 4096, "eagle_config": {"' + IDS + '": [-1, 2, 30]}}')
    report = check(tmp_path, LLAMA, DRAFT, flags={"decrypted_draft_config_file": str(tmp_path / "other.json")})
    assert (report.layout_taps, report.layout_source) == ((0, 3, 31), "decrypted_draft_config_file")


def test_unknown_target_class_is_said_and_the_rest_still_checked(tmp_path: Path) -> None:
    target = {**LLAMA, "architectures": ["MambaForCausalLM"]}
    report = check(tmp_path, target, DRAFT, draft_tensors(), [0] * 32000)
    assert {"target-class", "d2t-identity"} <= ids(report)
    assert report.layout_taps is None
    assert report.to_json()["layout"]["taps"] is None


def test_unread_weights_are_said(tmp_path: Path) -> None:
    report = check(tmp_path, LLAMA, DRAFT)
    assert "no *.safetensors" in finding(report, "draft-weights-unread").evidence


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


def test_missing_output_layer(tmp_path: Path) -> None:
    tensors = {name: entry for name, entry in draft_tensors().items() if name != "lm_head.weight"}
    report = check(tmp_path / "small", LLAMA, DRAFT, tensors, SPARSE)
    assert finding(report, "output-layer-missing").severity == "error"
    equal = {**DRAFT, "draft_vocab_size": 128256}
    report = check(tmp_path / "equal", LLAMA, equal, tensors, [0] * 128256)
    assert finding(report, "output-layer-missing").severity == "warning"
    assert "output-layer-missing" not in ids(
        check(tmp_path / "null", LLAMA, {**DRAFT, "draft_vocab_size": None}, tensors)
    )


def test_a_draft_class_of_a_release_we_have_not_read_is_only_a_warning(tmp_path: Path) -> None:
    draft = {**DRAFT, "architectures": ["Qwen3ForCausalLMEagle3"]}
    assert finding(check(tmp_path / "now", LLAMA, draft), "draft-class").severity == "error"
    assert finding(check(tmp_path / "later", LLAMA, draft, version="0.9.0"), "draft-class").severity == "warning"
