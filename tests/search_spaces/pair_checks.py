"""A pair on the disk and what a static check finds in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from small_checkpoints import LLAMA, write_checkpoint

from search_spaces.checkpoints import read_draft, read_target
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
