"""Where the draft's aux ids stand, and what SGLang captures for them on this target class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.checkpoints import AUX_IDS_KEY
from search_spaces.checks.context import CheckContext, Finding, error, info, warning
from search_spaces.checks.draft_class import MLA_DRAFT
from search_spaces.config import Taps
from search_spaces.dialects import Capture
from search_spaces.layouts import one_apart

_SOURCE = "srt/model_executor/model_runner_components/spec_aux_hidden_state.py"
_LOOKS_LIKE_IDS = re.compile(
    r"(aux|eagle|captur|target|hidden).*(layer|state).*(id|ind|list|s$)|layer_ids$", re.IGNORECASE
)


def misplaced_ids(context: CheckContext) -> list[Finding]:
    """Ids that stand anywhere but in `eagle_config`: SGLang ignores them without a word."""
    draft = context.draft
    block = draft.config.get("eagle_config")
    if draft.aux_ids is not None:
        top = draft.config.get(AUX_IDS_KEY)
        if isinstance(top, list) and tuple(top) != draft.aux_ids:
            return [
                warning(
                    "two-id-lists",
                    f"eagle_config says {list(draft.aux_ids)} and the top level {top}: SGLang takes the former",
                    f"{AUX_IDS_KEY} at both places of {draft.path / 'config.json'}",
                    "keep the list in eagle_config only, with the ids the draft was trained on",
                )
            ]
        return []
    where = next(_lists_like_ids(draft.config), None)
    taps = list(context.default.marks)
    if where is None:
        if block is not None and not isinstance(block, Mapping):
            return [_not_a_mapping(block, taps)]
        return [_missing(context, taps)]
    place, ids = where
    at_top = place == AUX_IDS_KEY
    same = _same_layout(context, ids)
    build = warning if same else error
    suffix = " (the same layout, by luck)" if same else _consequence(context, len(ids))
    return [
        build(
            "ids-at-top-level" if at_top else "ids-misplaced",
            f"{AUX_IDS_KEY if at_top else place} is at {'top level' if at_top else 'a place'} where SGLang does not"
            f" look for it: SGLang will capture {taps}, its default{suffix}",
            f"{place} = {ids} in {draft.path / 'config.json'}; {_SOURCE} reads eagle_config.{AUX_IDS_KEY} only",
            f'write "eagle_config": {{"{AUX_IDS_KEY}": {ids}}}',
        )
    ]


def _consequence(context: CheckContext, asked: int) -> str:
    got = len(context.default.taps)
    if asked == got:
        return "; the number of states agrees, so nothing fails and acceptance drops silently"
    sizes_by_top = context.draft.architecture == MLA_DRAFT and AUX_IDS_KEY in context.draft.config
    hidden = context.target.hidden_size
    expected = asked if sizes_by_top else 3
    if expected != got:
        return f"; fc expects {expected} x {hidden}, gets {got} x {hidden}: shape error at the first forward"
    return f"; the draft was trained on {asked} states"


def _same_layout(context: CheckContext, ids: list[int]) -> bool:
    return context.dialect.capture(tuple(ids), context.target.num_layers).taps == context.default.taps


def _not_a_mapping(block: object, taps: list[int]) -> Finding:
    return error(
        "eagle-config-unreadable",
        f"eagle_config is no mapping, so SGLang finds no ids in it: it will capture {taps}, its default",
        f"eagle_config = {block!r}; {_SOURCE} swallows every exception there",
        f'write "eagle_config": {{"{AUX_IDS_KEY}": [...]}} with the ids the draft was trained on',
    )


def _missing(context: CheckContext, taps: list[int]) -> Finding:
    return warning(
        "ids-missing",
        f"the draft names no aux ids: SGLang will capture {taps}, its default, which is right only if the draft was"
        " trained on those taps",
        f"no {AUX_IDS_KEY} in {context.draft.path / 'config.json'}; default of"
        f" {context.target.architecture} with {context.target.num_layers} layers",
        f'ask who trained the draft for its taps and write "eagle_config": {{"{AUX_IDS_KEY}": [...]}}',
    )


def _lists_like_ids(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[int]]]:
    """Keys anywhere in a config that look like a list of layer ids, the right name first."""
    found = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            found += list(_lists_like_ids(value, f"{prefix}{key}."))
        elif isinstance(value, list) and value and all(type(i) is int for i in value) and _LOOKS_LIKE_IDS.search(key):
            found.append((f"{prefix}{key}", value))
    yield from sorted(found, key=lambda pair: (pair[0] != AUX_IDS_KEY, AUX_IDS_KEY not in pair[0], len(pair[0])))


def copied_default(context: CheckContext) -> list[Finding]:
    """Explicit ids that are the default spelled out, or the default shifted by one block either way."""
    ids, taps, default = context.draft.aux_ids, context.capture.taps, context.default.taps
    if ids is None:
        return []
    if taps == default and not context.default.problems and not context.capture.problems:
        return [
            info("same-as-default", f"the ids {list(ids)} capture {list(taps)}, as leaving them out does", _ids(ids))
        ]
    if context.capture.problems or context.default.problems or not one_apart(default, taps):
        return []
    back = context.dialect.ids_for(default, context.target.num_layers)
    right = f"{list(back)} or null" if isinstance(back, tuple) else "null"
    beside = "behind" if taps[0] > default[0] else "before"
    cause = (
        f"the ids {list(ids)} are SGLang's default list, but written out they capture {list(taps)}: every tap is off"
        " by one (explicit ids are shifted, the default is not)"
        if ids == context.default.marks
        else f"the ids {list(ids)} capture {list(taps)}: every tap lies one block {beside} SGLang's default"
        f" {list(default)}, as when ids are read in another convention than they were written in"
    )
    return [
        warning(
            "ids-shifted",
            cause,
            f"{_ids(ids)}; {context.target.architecture} captures {list(default)} without ids",
            f"for the default layout write {right}; keep the list only if the draft was trained on {list(taps)}",
        )
    ]


def capture_problems(context: CheckContext) -> list[Finding]:
    """Ids that cannot be captured as written: unreachable, duplicate, or fewer than the draft takes."""
    ids, capture, layers = context.draft.aux_ids, context.capture, context.target.num_layers
    if not capture.problems:
        return []
    reasons = "; ".join(capture.problems)
    if ids is None:
        return [
            error(
                "default-collides",
                f"SGLang's default on {layers} layers is {list(capture.marks)}, no usable layout ({_order(capture)}):"
                f" {reasons}",
                f"[2, N//2, N-3] with N = {layers} on {context.target.architecture}, captured {list(capture.taps)}",
                "give ids in eagle_config: a target this small has no three distinct default taps",
            )
        ]
    short = len(capture.taps) < capture.expected or not ids
    build = error if short else warning
    return [
        build(
            "ids-not-captured" if short else "ids-from-the-end",
            f"the ids {list(ids)} do not reach the draft as written: {reasons}",
            f"{_ids(ids)}; {context.target.architecture} with {layers} layers captures {list(capture.taps)}",
            "give distinct ids that this class can capture" + _range_hint(context),
        )
    ]


def _order(capture: Capture) -> str:
    marks = capture.marks
    faults = ["duplicate"] if len(set(marks)) < len(marks) else []
    faults += ["unordered"] if list(marks) != sorted(marks) else []
    return " and ".join(faults) or "out of range"


def unordered_ids(context: CheckContext) -> list[Finding]:
    """Ids out of order: the states are fed in ascending order all the same."""
    ids, capture = context.draft.aux_ids, context.capture
    if ids is None or list(capture.marks) == sorted(capture.marks) or not capture.taps:
        return []
    back = context.dialect.ids_for(capture.taps, context.target.num_layers)
    if isinstance(back, tuple) and sorted(back) == sorted(ids) and list(back) != sorted(back):
        return []
    return [
        warning(
            "ids-unordered",
            f"the ids {list(ids)} are not in ascending order; order is lost, fc is fed {list(capture.taps)}",
            f"{_ids(ids)}; capture is a test of membership, block by block",
            f"write them in ascending order; a draft trained on {list(capture.marks)} in that order cannot be served",
        )
    ]


def _range_hint(context: CheckContext) -> str:
    first = context.dialect.ids_for((0,), context.target.num_layers)
    return f" (the embedding output is written {first[0]} here)" if isinstance(first, tuple) else ""


def embedding_tap(context: CheckContext) -> list[Finding]:
    """The embedding output among the taps is legal and rare: said, so that nobody has to guess."""
    taps: Taps = context.capture.taps
    if 0 not in taps:
        return []
    ids = context.draft.aux_ids
    return [info("embedding-tap", f"the layout {list(taps)} includes the embedding output", _ids(ids))]


def aux_states_off(context: CheckContext) -> list[Finding]:
    """`use_aux_hidden_state: false` in an EAGLE-3 draft's config."""
    if context.draft.eagle_config.get("use_aux_hidden_state", True):
        return []
    return [
        error(
            "aux-states-off",
            "eagle_config.use_aux_hidden_state is off: SGLang captures no taps and gives the draft the last state only",
            f"use_aux_hidden_state = {context.draft.eagle_config['use_aux_hidden_state']!r}",
            "remove it, or set it to true",
        )
    ]


def _ids(ids: tuple[int, ...] | None) -> str:
    return "no ids in the draft's config" if ids is None else f"eagle_config.{AUX_IDS_KEY} = {list(ids)}"
