"""Pairs of many target classes as `check` sees them: taps and findings, derived from SGLang 0.5.23's own source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import DRAFT, LLAMA, draft_tensors, write_checkpoint

from search_spaces.checkpoints import read_draft, read_target
from search_spaces.findings import CheckReport, Finding, check_pair

IDS = "eagle_aux_hidden_state_layer_ids"


def text_only(name: str, layers: int, hidden: int = 4096, vocab: int = 128256, **more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": vocab}
    return {**LLAMA, "architectures": [name], **sizes, **more}


def wrapped(name: str, layers: int, hidden: int = 4096, vocab: int = 128256, **more: Any) -> dict[str, Any]:
    """A multimodal config, whose language model stands in `text_config`."""
    inner = {
        key: value for key, value in text_only(name, layers, hidden, vocab, **more).items() if key != "architectures"
    }
    return {"architectures": [name], "model_type": "multimodal", "text_config": inner}


TARGETS: dict[str, dict[str, Any]] = {
    "llama": text_only("LlamaForCausalLM", 32),
    "qwen3": text_only("Qwen3ForCausalLM", 36, vocab=151936),
    "qwen3_moe": text_only("Qwen3MoeForCausalLM", 48, hidden=2048, vocab=151936),
    "qwen2_5_vl": text_only("Qwen2_5_VLForConditionalGeneration", 28, hidden=3584, vocab=152064),
    "qwen3_vl_moe": wrapped("Qwen3VLMoeForConditionalGeneration", 94, vocab=151936),
    "gpt_oss": text_only("GptOssForCausalLM", 36, hidden=2880, vocab=201088),
    "llama4": wrapped("Llama4ForConditionalGeneration", 48, hidden=5120, vocab=202048),
    "gemma3": wrapped("Gemma3ForConditionalGeneration", 34, hidden=2560, vocab=262208),
    "mistral": text_only("MistralForCausalLM", 40, hidden=5120, vocab=131072),
    "phi3": text_only("Phi3ForCausalLM", 32),
    "kimi": wrapped("KimiK25ForConditionalGeneration", 61, hidden=7168, vocab=163840),
    "deepseek_v3": text_only("DeepseekV3ForCausalLM", 61, hidden=7168, vocab=129280),
    "minimax_m3": wrapped("MiniMaxM3SparseForConditionalGeneration", 60, hidden=6144, vocab=200064),
    "minicpm": text_only("MiniCPMForCausalLM", 40),
    "mixtral": text_only("MixtralForCausalLM", 32),
}


def check(
    folder: Path,
    target: str = "llama",
    layer_ids: list[int] | None = None,
    *,
    tensors: dict[str, Any] | None = None,
    version: str = "0.5.23",
    tp_size: int = 1,
    flags: dict[str, Any] | None = None,
    d2t: list[int] | None = None,
    **draft: Any,
) -> CheckReport:
    config = TARGETS[target]
    text = config.get("text_config", config)
    own = {**DRAFT, "hidden_size": text["hidden_size"], "vocab_size": text["vocab_size"], **draft}
    if layer_ids is not None:
        own["eagle_config"] = {IDS: layer_ids, **own.get("eagle_config", {})}
    own = {key: value for key, value in own.items() if value is not ...}
    fitting = draft_tensors(hidden=text["hidden_size"], draft_hidden=text["hidden_size"])
    write_checkpoint(folder / "target", config)
    write_checkpoint(
        folder / "draft", own, fitting if tensors is None else tensors, d2t or [2 * i for i in range(32000)]
    )
    return check_pair(
        read_target(folder / "target"),
        read_draft(folder / "draft"),
        tp_size=tp_size,
        sglang_version=version,
        flags=flags or {},
        environment={},
    )


def ids(report: CheckReport, *severities: str) -> set[str]:
    return {finding.id for finding in report.findings if not severities or finding.severity in severities}


def finding(report: CheckReport, id: str) -> Finding:
    return next(finding for finding in report.findings if finding.id == id)


@pytest.mark.parametrize(
    ("target", "layer_ids", "taps"),
    [
        ("qwen3_moe", [-1, 2, 24], (0, 3, 25)),
        ("qwen3_moe", [-2, 2, 24], (3, 25, 47)),
        ("gpt_oss", [1, 17, 32], (2, 18, 33)),
        ("gpt_oss", [2, 18, 36], (2, 18, 36)),
        ("gpt_oss", [2, 18, 35], (3, 19, 36)),
        ("llama4", None, (2, 24, 45)),
        ("gemma3", [1, 16, 33], (2, 17, 34)),
        ("mistral", None, (2, 20, 37)),
        ("phi3", [1, 15, 28], (2, 16, 29)),
        ("qwen2_5_vl", None, (2, 14, 25)),
        ("qwen3_vl_moe", [1, 46, 90], (2, 47, 91)),
        ("kimi", [1, 29, 57], (2, 30, 58)),
        ("kimi", [0, 2, 30], (0, 2, 30)),
        ("kimi", [30, 2, 58], (2, 30, 58)),
        ("kimi", [1, 30, 58], (2, 31, 59)),
        ("deepseek_v3", [2, 30, 58], (2, 30, 58)),
        ("minimax_m3", None, (3, 31, 58)),
        ("minimax_m3", [2, 30, 57], (3, 31, 58)),
    ],
)
def test_taps_of_many_classes(tmp_path: Path, target: str, layer_ids: list[int] | None, taps: tuple[int, ...]) -> None:
    report = check(tmp_path, target, layer_ids)
    assert report.layout_taps == taps
    assert not ids(report, "error")


@pytest.mark.parametrize(
    ("target", "layer_ids", "words"),
    [
        ("qwen3_moe", [1, 23, 47], "IndexError"),
        ("gpt_oss", [2, 18, 37], "37 never matches"),
        ("gemma3", [1, 16, 34], "34 never matches"),
        ("kimi", [2, 30, 61], "61 never matches"),
        ("kimi", [1, 30, 60], "60 never matches"),
        ("kimi", [-1, 2, 30], "the embedding output is written 0"),
        ("llama", [2, 2, 16], "listed twice"),
        ("llama", [1, 15, 31], "31 never matches"),
        ("llama", [-2, 15, 28], "-2 never matches"),
        ("llama", [], "nothing would be captured"),
        ("llama", [1, 15, 10**30], "never matches"),
    ],
)
def test_ids_that_a_class_cannot_capture(tmp_path: Path, target: str, layer_ids: list[int], words: str) -> None:
    report = check(tmp_path, target, layer_ids)
    found = finding(report, "ids-not-captured")
    assert words in found.message + found.mend
    assert report.effective is None


@pytest.mark.parametrize(
    ("target", "layer_ids", "words"),
    [
        ("qwen3", [2, 18, 33], "SGLang's default list"),
        ("gpt_oss", [2, 18, 33], "SGLang's default list"),
        ("llama", [0, 14, 27], "one block before"),
        ("kimi", [3, 31, 59], "one block behind"),
        ("kimi", [2, 30, 58], None),
        ("llama", [1, 15, 28], None),
        ("llama", [2, 15, 28], None),
    ],
)
def test_a_shift_by_one_either_way(tmp_path: Path, target: str, layer_ids: list[int], words: str | None) -> None:
    report = check(tmp_path, target, layer_ids)
    if words is None:
        assert "ids-shifted" not in ids(report)
    else:
        assert words in finding(report, "ids-shifted").message
        assert not ids(report, "error")


@pytest.mark.parametrize("target", ["minicpm", "mixtral"])
def test_classes_that_cannot_be_captured(tmp_path: Path, target: str) -> None:
    assert "target-class" in ids(check(tmp_path, target, [1, 15, 28]), "error")


@pytest.mark.parametrize(
    ("target", "layer_ids", "version"), [("gemma3", [1, 16, 33], "0.5.11"), ("gpt_oss", [2, 18, 36], "0.5.15")]
)
def test_what_older_releases_cannot_do(tmp_path: Path, target: str, layer_ids: list[int], version: str) -> None:
    assert ids(check(tmp_path, target, layer_ids, version=version), "error") & {"target-class", "ids-not-captured"}


@pytest.mark.parametrize(
    ("triple", "rule", "words"),
    [
        ((1, 4, 8), "tree-pool", "need n-1=7 > pool 4: SGLang dies at the first draft"),
        ((3, 2, 2), "tokens-below-steps", "SGLang dies at the first verify step"),
        ((3, None, None), "all-or-none", "SGLang refuses to start"),
        ((4, 4, 54), "tree-pool", "need n-1=53 > pool 52"),
    ],
)
def test_refusals_say_what_sglang_does(tmp_path: Path, triple: Any, rule: str, words: str) -> None:
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    flags = {name: value for name, value in zip(names, triple, strict=True) if value is not None}
    found = finding(check(tmp_path, layer_ids=[1, 15, 28], flags=flags), rule)
    assert found.severity == "error"
    assert words in found.message
    assert found.mend


def test_a_chain_without_tokens_runs(tmp_path: Path) -> None:
    flags = {"speculative_num_steps": 3, "speculative_eagle_topk": 1}
    report = check(tmp_path, layer_ids=[1, 15, 28], flags=flags)
    assert report.effective is not None
    assert str(report.effective.triple) == "(3,1,4)"
    assert "ask for (3,1,4)" in finding(report, "topk1-tokens").mend


@pytest.mark.parametrize(("heads", "tp_size"), [((32, 8), 3), ((32, 8), 64), ((24, 6), 4)])
def test_heads_of_the_draft(tmp_path: Path, heads: tuple[int, int], tp_size: int) -> None:
    own = dict(zip(("num_attention_heads", "num_key_value_heads"), heads, strict=True))
    report = check(tmp_path, layer_ids=[1, 15, 28], tp_size=tp_size, **own)
    assert "SGLang dies while it builds the model" in finding(report, "tp-divides-heads").message


def test_a_tied_output_layer(tmp_path: Path) -> None:
    report = check(tmp_path / "a", layer_ids=[1, 15, 28], tie_word_embeddings=True)
    assert "lm_head.weight is skipped silently" in finding(report, "output-layer-tied").message
    whole = {name: facts for name, facts in draft_tensors().items() if name != "lm_head.weight"}
    shared = check(
        tmp_path / "b", layer_ids=[1, 15, 28], tie_word_embeddings=True, draft_vocab_size=None, tensors=whole
    )
    assert "output-layer-tied" not in ids(shared)


def test_maps_of_the_wrong_kind(tmp_path: Path) -> None:
    floats = {**draft_tensors(), "d2t": ("F32", [32000])}
    write_checkpoint(tmp_path / "target", LLAMA)
    write_checkpoint(tmp_path / "draft", DRAFT, floats)
    report = check_pair(
        read_target(tmp_path / "target"),
        read_draft(tmp_path / "draft"),
        tp_size=1,
        sglang_version="0.5.23",
        flags={},
        environment={},
    )
    assert "F32" in finding(report, "d2t-type").message
    assert finding(report, "d2t-type").severity == "error"


@pytest.mark.parametrize(
    ("config", "extra", "id", "words"),
    [
        ({}, {"input_norm.weight": ("BF16", [12288])}, "norm-skipped", "norm_before_fc is not on"),
        (
            {"eagle_config": {"fc_norm": True}, "norm_output": True},
            {f"fc_norm.{i}.weight": ("BF16", [4096]) for i in range(3)},
            "norm-skipped",
            "read at the top level only",
        ),
        (
            {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "norm_before_fc": True},
            {"input_norm.weight": ("BF16", [12288])},
            "norm-skipped",
            "has no such norm",
        ),
        ({"norm_before_fc": True}, {"input_norm.weight": ("BF16", [4096])}, "norm-width", "do not load"),
        ({}, {"midlayer.input_layernorm.weight": ("BF16", [2048])}, "norm-width", "do not load"),
        ({"fc_norm": True, "norm_output": True}, {}, "norm-without-tensor", "untrained norms"),
        (
            {"norm_before_fc": True, "eagle_config": {"norm_before_fc": False}},
            {"input_norm.weight": ("BF16", [12288])},
            "norm-skipped",
            "norm_before_fc is not on",
        ),
    ],
)
def test_norms(tmp_path: Path, config: dict[str, Any], extra: dict[str, Any], id: str, words: str) -> None:
    found = finding(check(tmp_path, layer_ids=[1, 15, 28], tensors={**draft_tensors(), **extra}, **config), id)
    assert found.severity == "error"
    assert words in found.message


def test_half_a_layer_is_told(tmp_path: Path) -> None:
    half = {**draft_tensors(), "midlayer.self_attn.q_proj.weight": ("BF16", [4096, 8192])}
    assert "layer-parts-missing" in ids(check(tmp_path / "a", layer_ids=[1, 15, 28], tensors=half), "warning")
    whole = {**half, "midlayer.mlp.up_proj.weight": ("BF16", [64, 4096])}
    assert "layer-parts-missing" not in ids(check(tmp_path / "b", layer_ids=[1, 15, 28], tensors=whole))
