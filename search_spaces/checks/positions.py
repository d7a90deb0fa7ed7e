"""Rotary embedding and position range of the draft against the target's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.checks.context import CheckContext, Finding, warning
from search_spaces.checks.environment import is_set

_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
"""Order in which SGLang looks for the context length (`srt/utils/hf_transformers/common.py`, CONTEXT_LENGTH_KEYS)."""


def context_length(config: Mapping[str, Any]) -> int:
    """The context length that SGLang derives from a config (`get_context_length`, same file)."""
    scaling = _scaling(config)
    factor = scaling.get("factor", 1)
    if "original_max_position_embeddings" in scaling or scaling.get("rope_type", scaling.get("type")) == "llama3":
        factor = 1
    for key in _KEYS:
        if isinstance(value := config.get(key), int):
            sane = isinstance(factor, int | float) and abs(factor) < 1e6 and value < 2**63
            return int(value * factor) if sane else value
    return 2048


def _scaling(config: Mapping[str, Any]) -> Mapping[str, Any]:
    block = config.get("rope_scaling") or config.get("rope_parameters")
    return block if isinstance(block, Mapping) else {}


def _theta(config: Mapping[str, Any]) -> float:
    value = config.get("rope_theta", _scaling(config).get("rope_theta", 10000.0))
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if usable else 10000.0


def _scaling_rule(config: Mapping[str, Any]) -> dict[str, Any]:
    """What changes the rotation, without the keys that only repeat the default."""
    scaling = _scaling(config)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    ignored = {"type", "rope_type", "rope_theta", "mrope_section", "mrope_interleaved", "partial_rotary_factor"}
    rule = {key: value for key, value in scaling.items() if key not in ignored}
    return {} if kind in ("default", "mrope") else {"rope_type": kind, **rule}


def position_range(context: CheckContext) -> list[Finding]:
    """A draft that knows fewer positions than the server will serve."""
    own = context_length(context.draft.text_config)
    flag = context.flags.get("context_length")
    served = flag if isinstance(flag, int) and flag > 0 else context_length(context.target.text_config)
    if own >= served:
        return []
    hidden = is_set(context.environment, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
    does = (
        f"SGLang stretches it to {served} because SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN is set"
        if hidden
        else "current SGLang refuses to start it unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN is set"
    )
    return [
        warning(
            "position-range",
            f"the draft knows {own} positions, the server goes to {served}: {does}; beyond {own} tokens acceptance"
            " falls or the position table is overrun",
            f"context length {own} (draft) against {served}"
            + (" (context_length flag)" if served == flag else " (target)"),
            f"write max_position_embeddings: {served} in the draft's config if it was trained with the target's rope,"
            f" or serve with --context-length {own}",
        )
    ]


def rope(context: CheckContext) -> list[Finding]:
    """Another rotation than the target's is legal, but rarely meant."""
    draft, target = context.draft.text_config, context.target.text_config
    findings = []
    if _theta(draft) != _theta(target):
        findings.append(
            warning(
                "rope-theta",
                f"the draft rotates with rope_theta {_theta(draft):g}, the target with {_theta(target):g}",
                f"rope_theta {_theta(draft):g} against {_theta(target):g} (10000 when absent)",
                "give the draft's config the rope_theta it was trained with; most trainers copy the target's",
            )
        )
    if _scaling_rule(draft) != _scaling_rule(target):
        findings.append(
            warning(
                "rope-scaling",
                "the draft's rope scaling is not the target's: positions beyond the unscaled range rotate differently",
                f"{_scaling_rule(draft) or 'none'} against {_scaling_rule(target) or 'none'}",
                "give the draft's config the rope scaling it was trained with",
            )
        )
    return findings
