"""Static findings about a draft's tensors and sizes, case by case."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pair_checks import KIMI, KIMI_DRAFT, QWEN3, SPARSE, check, finding, ids, with_ids
from small_checkpoints import DRAFT, LLAMA, draft_tensors


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


def test_any_number_of_layers_may_be_declared(tmp_path: Path) -> None:
    tracemalloc.start()
    report = check(tmp_path, LLAMA, {**DRAFT, "num_hidden_layers": 10**7}, draft_tensors())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "num_hidden_layers is 10000000" in finding(report, "draft-layers").message
    assert most < 20e6


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


def test_unread_weights_are_said(tmp_path: Path) -> None:
    report = check(tmp_path, LLAMA, DRAFT)
    assert "no *.safetensors" in finding(report, "draft-weights-unread").evidence


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
