"""What is to be traced of a study: layouts, topks and steps from its space, and the prompts that are left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.load.workload import Prompt, Workload
from actors.tracing import tracing_config
from results.traces import read_prompts, trace_folder_name
from search_spaces.config import EngineConfig, layout_label
from search_spaces.errors import InputError
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.isolation_ends import setting_of_config


@dataclass(frozen=True, kw_only=True)
class TraceChoice:
    """What to trace of a space. Empty and None: every layout, every topk, the space's greatest steps at that topk, the
    smallest TP size, all prompts."""

    layouts: tuple[tuple[int, ...], ...] = ()
    topks: tuple[int, ...] = ()
    num_steps: int | None = None
    tp_size: int | None = None
    prompts: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedTrace:
    """One trace with the prompts that are still to be traced, `done` of them being there already."""

    config: EngineConfig
    left: tuple[Prompt, ...]
    done: int

    @property
    def words(self) -> str:
        layout, triple = self.config.layout, self.config.triple
        assert layout is not None
        assert triple is not None
        return (
            f"layout {layout_label(layout)}, tp {self.config.tp_size}, topk {triple.eagle_topk}, "
            f"{triple.num_steps} steps"
        )

    def to_json(self) -> dict[str, Any]:
        layout, triple = self.config.layout, self.config.triple
        assert layout is not None
        assert triple is not None
        return {
            "layout": layout_label(layout),
            "tp_size": self.config.tp_size,
            "eagle_topk": triple.eagle_topk,
            "num_steps": triple.num_steps,
            "prompts_left": len(self.left),
            "prompts_done": self.done,
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
    deepest: dict[tuple[tuple[int, ...], int], int] = {}
    for config in here:
        assert config.layout is not None
        assert config.triple is not None
        key = (config.layout, config.triple.eagle_topk)
        deepest[key] = max(deepest.get(key, 0), config.triple.num_steps)
    layouts = choice.layouts or tuple(dict.fromkeys(layout for layout, _ in deepest))
    topks = choice.topks or tuple(sorted({topk for _, topk in deepest}))
    wanted = [
        tracing_config(
            EngineConfig(layout=layout, triple=here[0].triple, tp_size=tp_size, flags=here[0].flags),
            num_steps=choice.num_steps or deepest.get((layout, topk)) or max(deepest.values()),
            eagle_topk=topk,
        )
        for layout in layouts
        for topk in topks
        if choice.layouts or choice.topks or (layout, topk) in deepest
    ]
    for config in wanted:
        ruling = resolve_setting(setting_of_config(config), context)
        if isinstance(ruling, Illegal):
            raise InputError(
                f"trace: {PlannedTrace(config=config, left=(), done=0).words}: {ruling.message} ({ruling.rule})"
            )
    return tuple(wanted)


def plan_traces(
    traces: Path, configs: Iterable[EngineConfig], workload: Workload, prompts: int | None = None
) -> tuple[PlannedTrace, ...]:
    """What of these configurations is not traced yet, on the first `prompts` of the workload."""
    wanted = workload.prompts[:prompts]
    planned = []
    for config in configs:
        assert config.layout is not None
        assert config.triple is not None
        name = trace_folder_name(
            config.layout, config.tp_size, config.triple.eagle_topk, config.triple.num_steps, workload.workload_id
        )
        done = {prompt.prompt_id for prompt in read_prompts(traces / name)}
        left = tuple(prompt for prompt in wanted if prompt.prompt_id not in done)
        planned.append(PlannedTrace(config=config, left=left, done=len(wanted) - len(left)))
    return tuple(planned)
