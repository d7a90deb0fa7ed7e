"""What a study does beyond its trials: a check of switching, and traces. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from search_spaces.config import EngineConfig
from search_spaces.errors import InputError
from sweeps.pace import Pace
from sweeps.planning import SweepPlan
from sweeps.spec_schema import SweepSpec
from sweeps.switching import follows_surface, has_switches
from sweeps.trace_choice import TraceChoice, trace_configs, trace_row


@dataclass(frozen=True, kw_only=True)
class StudyExtras:
    """What a study does beyond the trials that `SweepPlan.launches` counts.

    `check` says that one setting is also measured on a fresh launch, beside a switch; `traces` are followed by the
    search, each on `prompts` (None: as many as the workload's source holds). `problem` is why nothing can be traced
    although the search asks for it.
    """

    check: bool = False
    traces: tuple[EngineConfig, ...] = ()
    prompts: int | None = None
    problem: str | None = None

    def to_json(self) -> list[dict[str, Any]]:
        """`traces` of `specsweep plan --json`."""
        return [{**trace_row(config), "prompts": self.prompts} for config in self.traces]


def extras_of(spec: SweepSpec, plan: SweepPlan, pace: Pace) -> StudyExtras:
    """The extras of a study, by the rules of `sweeps.compose`."""
    configs = [group.effective for group in plan.servers.groups]
    check = pace.switches and has_switches(configs)
    if not configs or not follows_surface(spec, pace.switches):
        return StudyExtras(check=check)
    asked = spec.workload.prompts
    prompts = asked if isinstance(asked, int) else spec.workload.count
    try:
        return StudyExtras(check=check, traces=trace_configs(configs, plan.context, TraceChoice()), prompts=prompts)
    except InputError as problem:
        return StudyExtras(check=check, problem=str(problem))
