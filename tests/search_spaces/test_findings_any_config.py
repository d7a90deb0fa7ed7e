"""Whatever a config.json holds: one line that refuses it, or a report."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from small_checkpoints import DRAFT, LLAMA, draft_tensors, write_checkpoint

from search_spaces.checkpoints import read_draft, read_target
from search_spaces.errors import InputError
from search_spaces.findings import check_pair

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**7) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "architectures",
        "hidden_size",
        "vocab_size",
        "draft_vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "eagle_config",
        "eagle_aux_hidden_state_layer_ids",
        "num_aux_hidden_states",
        "target_hidden_size",
        "norm_before_fc",
        "fc_norm",
        "use_aux_norm",
        "norm_output",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "max_position_embeddings",
        "dtype",
        "torch_dtype",
        "quantization_config",
        "compression_config",
        "tie_word_embeddings",
        "text_config",
        "thinker_config",
        "bias",
        "model_type",
        "kv_lora_rank",
        "moe_intermediate_size",
    ]
)
EAGLE = st.dictionaries(
    st.sampled_from(["eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state", "norm_before_fc", "layer_ids"]),
    JUNK | st.lists(st.integers(-3, 40), max_size=4),
    max_size=3,
)
CHANGES = st.dictionaries(KEYS, JUNK, max_size=3)


@given(target=CHANGES, draft=CHANGES, eagle=st.none() | EAGLE, with_weights=st.booleans())
@settings(max_examples=120, deadline=None)
def test_a_line_or_a_report(
    target: dict[str, Any], draft: dict[str, Any], eagle: dict[str, Any] | None, with_weights: bool
) -> None:
    changed = {**DRAFT, **draft} if eagle is None else {**DRAFT, **draft, "eagle_config": eagle}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_checkpoint(folder / "target", {**LLAMA, **target})
        write_checkpoint(folder / "draft", changed, draft_tensors(vocab=4) if with_weights else None, [0, 0, 0, 0])
        try:
            pair = read_target(folder / "target"), read_draft(folder / "draft")
            report = check_pair(*pair, tp_size=2, sglang_version="0.5.23", flags={}, environment={})
        except InputError as refusal:
            message, report = str(refusal), None
    if report is None:
        assert "\n" not in message
        assert "config.json" in message
        return
    json.dumps(report.to_json())
    assert all("\n" not in finding.message and finding.evidence for finding in report.findings)
