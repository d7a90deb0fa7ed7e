"""Tensors that the draft class would skip, and parts that the config turns on but the weights lack."""

from __future__ import annotations

import re

from search_spaces.checks.context import CheckContext, Finding, error, info, warning
from search_spaces.checks.draft_class import (
    EAGLE3_DRAFTS,
    LLAMA_DRAFT,
    MLA_DRAFT,
    FcInput,
    built_fc,
    fc_norm,
    norm_before_fc,
)
from search_spaces.model_facts import DraftFacts

_INPUT_NORM = re.compile(r"(^|\.)input_norm\.weight$")
_FC_NORM = re.compile(r"(^|\.)(fc_norm\.\d+|aux_norm_(low|mid|high))\.weight$")
_LAYER_NORM = re.compile(
    r"(^|\.)((midlayer|layers\.\d+)\.(hidden_norm|input_layernorm|post_attention_layernorm)|(model\.)?norm)\.weight$"
)
_KNOWN = re.compile(
    r"^(model\.)?("
    r"d2t|t2d|lm_head\..+|embed_tokens\..+|fc\.weight(_\w+)?|norm\.weight|input_norm\.weight|fc_norm\.\d+\.weight"
    r"|aux_norm_(low|mid|high)\.weight"
    r"|(midlayer|layers\.\d+)\.(hidden_norm|input_layernorm|post_attention_layernorm|self_attn\..+|mlp\..+)(\.weight)?"
    r")$"
)


def norm_placement(context: CheckContext) -> list[Finding]:
    """Norm tensors against the flags that make SGLang apply them (`norm_before_fc`, `fc_norm`, `use_aux_norm`)."""
    draft = context.draft
    if not draft.tensors:
        return []
    count = built_fc(draft).taps
    return [
        *_norm(draft, "norm_before_fc", norm_before_fc(draft), _matching(draft, _INPUT_NORM), 1),
        *_norm(draft, "fc_norm", fc_norm(draft), _matching(draft, _FC_NORM), count),
    ]


def _matching(draft: DraftFacts, pattern: re.Pattern[str]) -> list[str]:
    return sorted(name for name in draft.tensors if pattern.search(name))


def _norm(draft: DraftFacts, flag: str, on: bool, names: list[str], needed: int) -> list[Finding]:
    if names and not on:
        why, mend = _why_off(draft, flag)
        return [
            error(
                "norm-skipped",
                f"tensor present, flag absent: {names[0]} is in the checkpoint but {why}, so the norm will be skipped"
                " and the draft sees states it was not trained on",
                f"{', '.join(names)}; {flag} = {draft.config.get(flag)!r} at the top level,"
                f" {draft.eagle_config.get(flag)!r} in eagle_config",
                mend,
            )
        ]
    if on and len(names) < needed:
        return [
            error(
                "norm-without-tensor",
                f"flag present, tensor absent: {flag} is on but {len(names)} of {needed} norm weights are in the"
                " checkpoint, so SGLang applies untrained norms",
                f"found {', '.join(names) or 'none'}",
                f"remove {flag}, or save the norms with the draft",
            )
        ]
    return []


def _why_off(draft: DraftFacts, flag: str) -> tuple[str, str]:
    """Why a norm stays off, and what turns it on."""
    if flag == "norm_before_fc" and draft.architecture == MLA_DRAFT:
        return f"{MLA_DRAFT} has no such norm", f"use {LLAMA_DRAFT}, the only class with that norm"
    if draft.eagle_config.get(flag) and flag != "norm_before_fc":
        return f"{flag} is read at the top level only, not in eagle_config", f'write "{flag}": true at the top level'
    return f"{flag} is not on", f'write "{flag}": true in the draft\'s config'


def norm_output(context: CheckContext) -> list[Finding]:
    """Drafts of the eagle3.1 kind carry `fc_norm` and `norm_output` together."""
    draft = context.draft
    if fc_norm(draft) == bool(draft.config.get("norm_output", False)):
        return []
    on, off = ("fc_norm", "norm_output") if fc_norm(draft) else ("norm_output", "fc_norm")
    return [
        warning(
            "norm-output",
            f"{on} is on and {off} is not: drafts of the eagle3.1 kind are trained with both; norm_output decides"
            " whether a step hands the next one its state before or after the last norm",
            f"fc_norm {fc_norm(draft)}, norm_output {draft.config.get('norm_output')!r}",
            "ask who trained the draft, and write norm_output as it was in training",
        )
    ]


def ignored_tensors(context: CheckContext) -> list[Finding]:
    """Names that the draft class has no place for: its loader skips them without a word."""
    draft = context.draft
    if draft.architecture not in EAGLE3_DRAFTS:
        return []
    names = [name for name in sorted(draft.tensors) if not _KNOWN.match(name) and not _biased(draft, name)]
    if not names:
        return []
    return [
        warning(
            "tensors-ignored",
            f"{len(names)} tensors have names that {draft.architecture} does not know: SGLang skips them silently",
            ", ".join(names[:8]) + (", ..." if len(names) > 8 else ""),
            "rename them as the class expects, or drop them if they are left over from training",
        )
    ]


def _biased(draft: DraftFacts, name: str) -> bool:
    return name.endswith("fc.bias") and bool(draft.config.get("bias", False))


def norm_widths(context: CheckContext) -> list[Finding]:
    """Norm weights against the widths that the draft class builds them with."""
    draft, built = context.draft, built_fc(context.draft)
    if draft.architecture not in EAGLE3_DRAFTS:
        return []
    wrong = []
    for name, facts in sorted(draft.tensors.items()):
        width = next((width for pattern, width in _norm_sizes(draft, built) if pattern.search(name)), None)
        if width is not None and facts.shape != (width,):
            wrong.append(f"{name} is {list(facts.shape)}, not [{width}]")
    if not wrong:
        return []
    return [
        error(
            "norm-width",
            f"{len(wrong)} norm weights have another width than SGLang builds: the weights do not load",
            "; ".join(wrong[:4]),
            "make hidden_size, target_hidden_size and the number of ids agree with the weights",
        )
    ]


def _norm_sizes(draft: DraftFacts, built: FcInput) -> list[tuple[re.Pattern[str], int]]:
    sizes = [(_LAYER_NORM, draft.hidden_size)]
    sizes += [(_INPUT_NORM, built.width)] if norm_before_fc(draft) else []
    return sizes + ([(_FC_NORM, built.tap_width)] if fc_norm(draft) else [])


def layer_parts(context: CheckContext) -> list[Finding]:
    """A decoder layer without attention or MLP weights: what is absent stays as it was made, at random."""
    draft = context.draft
    if not draft.tensors or draft.weights_problems or draft.architecture not in EAGLE3_DRAFTS:
        return []
    absent = [part for part in ("self_attn", "mlp") if not any(f".{part}." in f".{name}" for name in draft.tensors)]
    if not absent:
        return []
    # headers of a few tensors only are how a checkpoint is sketched; half a layer is how one gets lost
    build = warning if len(absent) == 1 else info
    return [
        build(
            "layer-parts-missing",
            f"the checkpoint has no {' and no '.join(absent)} weights: SGLang starts them at random and says nothing",
            f"{len(draft.tensors)} tensors, the draft's layer stands under midlayer or layers.0",
            "save the whole draft, with its layer",
        )
    ]


def fc_present(context: CheckContext) -> list[Finding]:
    draft = context.draft
    if not draft.tensors or draft.fc_in_features is not None or draft.architecture not in EAGLE3_DRAFTS:
        return []
    if any(".fc." in f".{name}" for name in draft.tensors):
        return [
            info("fc-packed", "fc is stored in a quantised form, so its width was not checked", "no plain fc.weight")
        ]
    return [
        error(
            "fc-missing",
            "the checkpoint has no fc.weight: the projection of the taps starts random",
            ", ".join(sorted(draft.tensors)[:8]),
            "is this an EAGLE-3 draft? Save it with its fc",
        )
    ]
