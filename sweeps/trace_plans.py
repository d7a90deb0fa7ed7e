"""What of the wanted traces is not there yet, prompt by prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.load.workload import Prompt, Workload
from results.traces import read_prompts, read_untraceable, trace_folder_name
from search_spaces.config import EngineConfig
from sweeps.trace_choice import trace_row, trace_words


@dataclass(frozen=True, kw_only=True)
class PlannedTrace:
    """One trace with the prompts that are still to be traced; `done` are there already, and the `untraceable` are known
    to be so, one line each."""

    config: EngineConfig
    left: tuple[Prompt, ...]
    done: int
    untraceable: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return trace_words(self.config)

    @property
    def wanted(self) -> int:
        """How many prompts the trace is to have."""
        return self.done + len(self.left) + len(self.untraceable)

    def to_json(self) -> dict[str, Any]:
        return {
            **trace_row(self.config),
            "prompts_left": len(self.left),
            "prompts_done": self.done,
            "prompts_untraceable": len(self.untraceable),
        }


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
            config.layout,
            config.tp_size,
            config.triple.eagle_topk,
            config.triple.num_steps,
            workload_id=workload.workload_id,
            flags=config.flags,
        )
        done = {prompt.prompt_id for prompt in read_prompts(traces / name)}
        missing = [prompt for prompt in wanted if prompt.prompt_id not in done]
        reasons = read_untraceable(traces / name)
        planned.append(
            PlannedTrace(
                config=config,
                left=tuple(prompt for prompt in missing if prompt.prompt_id not in reasons),
                done=len(wanted) - len(missing),
                untraceable=tuple(
                    f"prompt {prompt.prompt_id}: {reasons[prompt.prompt_id]}"
                    for prompt in missing
                    if prompt.prompt_id in reasons
                ),
            )
        )
    return tuple(planned)
