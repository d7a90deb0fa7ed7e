"""Which traces a space needs: one per layout and topk, at the greatest steps there. Pure, and light: `plan` asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from search_spaces.config import EngineConfig, Setting, layout_label
from search_spaces.errors import InputError
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting


@dataclass(frozen=True, kw_only=True)
class TraceChoice:
    """What to trace of a space. Empty and None: every layout, every topk, the space's greatest steps at that topk, the
    smallest TP size, all prompts."""

    layouts: tuple[tuple[int, ...], ...] = ()
    topks: tuple[int, ...] = ()
    num_steps: int | None = None
    tp_size: int | None = None
    prompts: int | None = None


def trace_words(config: EngineConfig) -> str:
    """A traced configuration as people read it; its tree does not matter."""
    assert config.layout is not None
    assert config.triple is not None
    return (
        f"layout {layout_label(config.layout)}, tp {config.tp_size}, topk {config.triple.eagle_topk}, "
        f"{config.triple.num_steps} steps"
    )


def trace_row(config: EngineConfig) -> dict[str, Any]:
    """What a trace is of, as plain values."""
    assert config.layout is not None
    assert config.triple is not None
    return {
        "layout": layout_label(config.layout),
        "tp_size": config.tp_size,
        "eagle_topk": config.triple.eagle_topk,
        "num_steps": config.triple.num_steps,
        "flags": dict(config.flags),
    }


def trace_configs(
    configs: Iterable[EngineConfig], context: RuleContext, choice: TraceChoice
) -> tuple[EngineConfig, ...]:
    """The configurations to trace for the legal `configs` of a space, layout by layout.

    All have the flags of the first legal setting at that TP size, because other flags need another server. InputError
    when a choice is not in the space or SGLang would not run it.
    """
    speculating = [config for config in configs if config.triple is not None and config.layout is not None]
    if not speculating:
        raise InputError("space: has no speculative setting to trace")
    tp_size = choice.tp_size or min(config.tp_size for config in speculating)
    here = [config for config in speculating if config.tp_size == tp_size]
    if not here:
        sizes = ", ".join(str(size) for size in sorted({config.tp_size for config in speculating}))
        raise InputError(f"--tp: {tp_size} is not in the space (legal: {sizes})")
    return tuple(_resolved(setting, context) for setting in _settings(here, choice))


def _settings(here: list[EngineConfig], choice: TraceChoice) -> Iterator[Setting]:
    """With the smallest tree, whose size does not change what is traced."""
    deepest: dict[tuple[tuple[int, ...], int], int] = {}
    for config in here:
        assert config.layout is not None
        assert config.triple is not None
        key = (config.layout, config.triple.eagle_topk)
        deepest[key] = max(deepest.get(key, 0), config.triple.num_steps)
    for layout in choice.layouts or tuple(dict.fromkeys(layout for layout, _ in deepest)):
        for topk in choice.topks or sorted({topk for _, topk in deepest}):
            if choice.layouts or choice.topks or (layout, topk) in deepest:
                steps = choice.num_steps or deepest.get((layout, topk)) or max(deepest.values())
                yield Setting(
                    layout=layout_label(layout),
                    num_steps=steps,
                    eagle_topk=topk,
                    num_draft_tokens=steps + 1,
                    tp_size=here[0].tp_size,
                    flags=here[0].flags,
                )


def _resolved(setting: Setting, context: RuleContext) -> EngineConfig:
    ruling = resolve_setting(setting, context)
    if isinstance(ruling, Illegal):
        raise InputError(
            f"trace: layout {setting.layout}, tp {setting.tp_size}, topk {setting.eagle_topk}, {setting.num_steps} "
            f"steps: {ruling.message} ({ruling.rule})"
        )
    return ruling.effective
