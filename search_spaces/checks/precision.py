"""Number formats of draft and target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.checks.context import CheckContext, Finding, error, info, warning

_PACKED = ("F8_E4M3", "F8_E5M2", "U8", "I8", "F4", "F8_E8M0")


def _dtype(config: Mapping[str, Any], outer: Mapping[str, Any]) -> str | None:
    value = config.get("dtype") or config.get("torch_dtype") or outer.get("dtype") or outer.get("torch_dtype")
    return str(value).removeprefix("torch.") if value else None


def dtype(context: CheckContext) -> list[Finding]:
    """Declared number formats that differ, where no flag sets one for both."""
    if context.flags.get("dtype") not in (None, "auto"):
        return []
    draft = _dtype(context.draft.text_config, context.draft.config)
    target = _dtype(context.target.text_config, context.target.config)
    if draft is None or target is None or draft == target:
        return []
    return [
        warning(
            "dtype",
            f"the draft is declared {draft}, the target {target}: the states it is fed and its shared embedding are of"
            " the target's format",
            f"dtype {draft} against {target}",
            f"convert the draft to {target}, or set --dtype for both",
        )
    ]


def quantisation(context: CheckContext) -> list[Finding]:
    """Quantised tensors without the config that says how, and a target's method spilling over to the draft."""
    draft = context.draft
    declared = draft.config.get("quantization_config") or draft.config.get("compression_config")
    packed = sorted(
        name for name, facts in draft.tensors.items() if facts.dtype in _PACKED and not name.endswith(("t2d", "d2t"))
    )
    findings = []
    if packed and not declared and not context.flags.get("speculative_draft_model_quantization"):
        findings.append(
            error(
                "quantisation-undeclared",
                f"{len(packed)} of the draft's tensors are quantised, but its config has no quantization_config:"
                " SGLang loads them as plain numbers",
                f"{packed[0]} is {draft.tensors[packed[0]].dtype}",
                "save the quantization_config with the draft, or ship it unquantised",
            )
        )
    method = context.flags.get("quantization")
    if method and not declared and not context.flags.get("speculative_draft_model_quantization"):
        findings.append(
            warning(
                "quantisation-inherited",
                f"--quantization {method} goes to the draft as well, which is not quantised",
                "srt/arg_groups/serving_hook.py gives the draft the target's method when it has no flag of its own",
                "set --speculative-draft-model-quantization unquant",
            )
        )
    target = context.target.config.get("quantization_config") or context.target.text_config.get("quantization_config")
    if target and not findings:
        name = target.get("quant_method", "unknown") if isinstance(target, Mapping) else "unknown"
        findings.append(
            info(
                "target-quantised",
                f"the target is quantised ({name}): a draft trained before that sees slightly other states",
                f"quantization_config.quant_method = {name}",
            )
        )
    return findings
