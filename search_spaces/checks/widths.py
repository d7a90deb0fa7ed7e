"""Widths that must agree: `fc` against taps x target hidden size, hidden sizes, layers."""

from __future__ import annotations

import re

from search_spaces.checks.context import CheckContext, Finding, error, info, warning
from search_spaces.checks.draft_class import EAGLE3_DRAFTS, MLA_DRAFT, built_fc
from search_spaces.versions import READ_VERSION, version_key

_LAYER = re.compile(r"[0-9]{1,9}")


def draft_class(context: CheckContext) -> list[Finding]:
    """The class that SGLang would load the draft as."""
    name = context.draft.architecture
    if name in EAGLE3_DRAFTS:
        return []
    shown = repr(name) if name else "missing"
    newer = "eagle3" in name.lower() and version_key(context.sglang_version) > version_key(READ_VERSION)
    build = warning if newer else error
    return [
        build(
            "draft-class",
            f"the draft's architectures is {shown}: SGLang has no EAGLE-3 draft class of that name"
            + (" and would load it as an ordinary model, without fc" if name else " and cannot load it"),
            f"{context.draft.path / 'config.json'}",
            f"set architectures to one of {', '.join(EAGLE3_DRAFTS)}, whichever the weights were written for",
        )
    ]


def fc_width(context: CheckContext) -> list[Finding]:
    """What feeds `fc` (captured taps x target hidden size) against its weight and against what SGLang builds."""
    hidden, taps = context.target.hidden_size, context.capture.taps
    fed = len(taps) * hidden
    built = built_fc(context.draft)
    stored = context.draft.fc_in_features
    findings = []
    if stored is not None and stored != fed:
        holds = f"{stored // hidden} taps" if stored % hidden == 0 else f"no whole number of taps of width {hidden}"
        findings.append(
            error(
                "fc-width",
                f"fc takes {stored} values, which is {holds}; the target hands it {len(taps)} x {hidden} = {fed}:"
                " shape error at the first forward",
                f"fc.weight is [{context.draft.hidden_size}, {stored}]; captured taps {list(taps)}",
                "give as many ids as the draft was trained on, or pair it with the target it was trained for",
            )
        )
    if built.width != fed or (stored is not None and stored != built.width):
        gets = stored if stored is not None and stored != built.width else fed
        findings.append(
            error(
                "fc-built-width",
                f"SGLang builds fc for {built.taps} x {built.tap_width} = {built.width} values (from {built.source}),"
                f" against {gets}: the weights do not load or the first forward fails",
                f"target hidden size {hidden}, captured taps {list(taps)}, fc.weight takes {stored or 'unread'}",
                "make eagle_config's ids, num_aux_hidden_states and target_hidden_size agree with the weights",
            )
        )
    if fed == context.draft.hidden_size and not findings:
        findings.append(
            error(
                "fc-bypassed",
                f"the captured state is {fed} wide, as the draft itself: SGLang then skips fc altogether",
                f"{len(taps)} tap of {hidden}; srt/models/llama_eagle3.py applies fc only when the widths differ",
                "use more than one tap",
            )
        )
    return findings


def hidden_size(context: CheckContext) -> list[Finding]:
    """Draft and target of different width: declared, and with an embedding of the draft's own."""
    target, draft = context.target.hidden_size, context.draft
    declared = draft.config.get("target_hidden_size")
    findings = []
    if declared is not None and declared != target:
        findings.append(
            error(
                "target-hidden-size",
                f"the draft was made for a target of hidden size {declared}, this one has {target}",
                f"target_hidden_size = {declared!r}",
                "pair the draft with the target it was trained for",
            )
        )
    if draft.hidden_size == target:
        return findings
    if declared is None:
        findings.append(
            error(
                "hidden-size",
                f"the draft's hidden size is {draft.hidden_size}, the target's {target}, and target_hidden_size is not"
                " given: SGLang takes the draft's for both",
                f"hidden_size {draft.hidden_size} against {target}",
                f"pair the draft with its own target, or write target_hidden_size: {target}",
            )
        )
    elif draft.tensors and draft.tensor("embed_tokens.weight") is None:
        findings.append(
            error(
                "embedding-missing",
                "the draft cannot share the target's embedding (another width) and brings none: it starts random",
                f"hidden_size {draft.hidden_size} against {target}, no embed_tokens.weight",
                "save the draft with its embedding",
            )
        )
    return findings


def layers(context: CheckContext) -> list[Finding]:
    """Layers that the config promises against those the weights hold."""
    declared = context.draft.text_config.get("num_hidden_layers")
    if not isinstance(declared, int):
        return []
    if context.draft.architecture == MLA_DRAFT and declared != 1:
        return [_layer_error(f"num_hidden_layers is {declared}; {MLA_DRAFT} takes 1 only", "")]
    names = [name.replace("midlayer.", "layers.0.") for name in context.draft.tensors]
    stored = {int(parts[i + 1]) for name in names for parts in [name.split(".")] for i in _layer_positions(parts)}
    # the layers 0 to declared - 1, without counting them up: a config may declare any number
    if stored and (len(stored), max(stored) + 1) != (declared, declared):
        return [
            _layer_error(
                f"num_hidden_layers is {declared}, the weights hold layers {sorted(stored)}",
                ": layers without weights start random, weights without a layer are skipped",
            )
        ]
    return []


def _layer_positions(parts: list[str]) -> list[int]:
    return [i for i, part in enumerate(parts[:-1]) if part == "layers" and _LAYER.fullmatch(parts[i + 1])]


def _layer_error(what: str, consequence: str) -> Finding:
    return error("draft-layers", what + consequence, what, "write the number of layers that the draft really has")


def weight_files(context: CheckContext) -> list[Finding]:
    """What could not be read, and files that are missing or short."""
    findings = []
    for who, facts, build in (("draft", context.draft, warning), ("target", context.target, info)):
        if facts.weights_unread:
            findings.append(
                build(
                    f"{who}-weights-unread",
                    f"the {who}'s weights were not read, so nothing that rests on them was checked",
                    f"{facts.path}: {facts.weights_unread}",
                    f"point to a folder with the {who}'s safetensors files",
                )
            )
        if facts.weights_problems:
            more = len(facts.weights_problems) - 1
            findings.append(
                warning(
                    f"{who}-weights-incomplete",
                    f"the {who}'s weight files are not all there",
                    f"{facts.path}: {facts.weights_problems[0]}" + (f", and {more} more like it" if more else ""),
                    "download or copy the checkpoint again",
                )
            )
    return findings
