"""Targets and drafts as facts, without files, and the command lines that are compared with SGLang's own resolution."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search_spaces.config import Flags, Setting
from search_spaces.model_facts import DraftFacts, TargetFacts, TensorFacts
from search_spaces.rulings import RuleContext

HEADS: dict[str, Any] = {"num_attention_heads": 32, "num_key_value_heads": 8}


def context(
    architecture: str = "LlamaForCausalLM",
    num_layers: int = 32,
    *,
    hidden_size: int = 4096,
    aux_ids: tuple[int, ...] | None = None,
    fc_in_features: int | None = None,
    version: str = "0.5.23",
    target_config: Mapping[str, Any] = HEADS,
    draft_config: Mapping[str, Any] = HEADS,
    **args: object,
) -> RuleContext:
    tensors = {} if fc_in_features is None else {"fc.weight": TensorFacts(dtype="BF16", shape=(64, fc_in_features))}
    return RuleContext(
        target=TargetFacts(
            path=Path("target"),
            architecture=architecture,
            model_type="any",
            num_layers=num_layers,
            hidden_size=hidden_size,
            vocab_size=32000,
            config=target_config,
        ),
        draft=DraftFacts(
            path=Path("draft"),
            architecture="LlamaForCausalLMEagle3",
            hidden_size=hidden_size,
            aux_ids=aux_ids,
            tensors=tensors,
            weights_unread=None,
            config=draft_config,
        ),
        sglang_version=version,
        args=args,
    )


def setting(
    steps: int | None = 3,
    topk: int | None = 1,
    tokens: int | None = 4,
    *,
    layout: str = "default",
    tp_size: int = 1,
    flags: Flags = (),
) -> Setting:
    return Setting(
        layout=layout, num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens, tp_size=tp_size, flags=flags
    )


def _argv(numbers: tuple[int | None, int | None, int | None], **flags: object) -> list[str]:
    named = dict(zip(("num_steps", "eagle_topk", "num_draft_tokens"), numbers, strict=True))
    flags = {
        **{f"speculative_{name}": value for name, value in named.items() if value is not None},
        "device": "cpu",
        "speculative_algorithm": "EAGLE3",
        "prefill_attention_backend": "intel_amx",
        "decode_attention_backend": "intel_amx",
        **flags,
    }
    words = []
    for name, value in flags.items():
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


GRID = tuple(itertools.product((1, 2, 3, 5), (1, 2, 4, 8), (2, 4, 5, 8, 16)))
CASES: dict[str, tuple[tuple[int | None, int | None, int | None], dict[str, object]]] = {
    **{f"grid {numbers}": (numbers, {}) for numbers in GRID},
    "none given": ((None, None, None), {}),
    "topk only": ((None, 4, None), {}),
    "tokens only": ((None, None, 4), {}),
    "no tokens": ((3, 4, None), {}),
    "chain without tokens": ((3, 1, None), {}),
    "steps only": ((3, None, None), {}),
    "no topk": ((3, None, 4), {}),
    "capped by hand": ((3, 1, 4), {"max_running_requests": 7}),
    "mixed chunk": ((3, 1, 4), {"enable_mixed_chunk": True}),
    "rejection sampling chain": ((3, 1, 4), {"speculative_use_rejection_sampling": True}),
    "rejection sampling tree": ((3, 4, 8), {"speculative_use_rejection_sampling": True}),
    "rejection sampling threshold": (
        (3, 1, 4),
        {"speculative_use_rejection_sampling": True, "speculative_accept_threshold_single": 0.5},
    ),
    "paged chain": ((3, 1, 4), {"page_size": 64}),
    "paged tree": ((3, 4, 8), {"page_size": 64}),
    "paged tree on triton": (
        (3, 4, 8),
        {"page_size": 64, "prefill_attention_backend": "triton", "decode_attention_backend": "triton"},
    ),
    "adaptive": ((3, 1, 4), {"speculative_adaptive": True}),
    "adaptive wide": ((5, 1, 16), {"speculative_adaptive": True}),
    "adaptive steps": ((2, 1, 3), {"speculative_adaptive": True}),
    "adaptive tree": ((3, 4, 8), {"speculative_adaptive": True}),
    "adaptive unset": ((None, None, None), {"speculative_adaptive": True}),
    "standalone unset": ((None, None, None), {"speculative_algorithm": "STANDALONE"}),
    "standalone mixed chunk": ((3, 1, 4), {"speculative_algorithm": "STANDALONE", "enable_mixed_chunk": True}),
    "pipeline": ((3, 1, 4), {"pp_size": 2}),
    "dp attention on standalone": (
        (3, 1, 4),
        {"speculative_algorithm": "STANDALONE", "tp_size": 2, "dp_size": 2, "enable_dp_attention": True},
    ),
    "flex attention": (
        (3, 1, 4),
        {"prefill_attention_backend": "flex_attention", "decode_attention_backend": "flex_attention"},
    ),
}
ARGVS = {name: _argv(numbers, **flags) for name, (numbers, flags) in CASES.items()}
FIXED = {"device": "cpu", "prefill_attention_backend": "intel_amx", "decode_attention_backend": "intel_amx"}
