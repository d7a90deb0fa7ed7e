"""How long a plan takes, roughly: what loads weights, what a running server is switched to, how many run at once."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

from actors.cluster_address import ClusterAddress
from actors.engines.devices import has_gpu
from search_spaces.config import EngineConfig
from search_spaces.errors import InputError
from sweeps.planning import SweepPlan
from sweeps.spec_schema import SweepSpec
from sweeps.switching import follows_surface, has_switches, known_device, server_kind, switches
from sweeps.trace_choice import TraceChoice, trace_configs, trace_row

SECONDS_PER_LAUNCH, SECONDS_PER_SWITCH = 180.0, 60.0


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What things take and what is shared. `slots` is None when the number of GPUs is not known; then one group at a
    time is assumed. `switches` says that a running server takes another layout or triple without loading weights."""

    seconds_per_launch: float
    seconds_per_switch: float
    slots: int | None
    max_parallel: int | None
    switches: bool

    def groups(self, tp_size: int) -> int:
        """How many servers of this size run at once."""
        fit = 1 if self.slots is None else max(1, self.slots // tp_size)
        return fit if self.max_parallel is None else min(fit, self.max_parallel)


def pace_of(
    spec: SweepSpec,
    seconds_per_launch: float = SECONDS_PER_LAUNCH,
    seconds_per_switch: float = SECONDS_PER_SWITCH,
) -> Pace:
    """The pace of a spec's cluster, as far as it can be told without asking one."""
    return Pace(
        seconds_per_launch=seconds_per_launch,
        seconds_per_switch=seconds_per_switch,
        slots=spec.cluster.gpus,
        max_parallel=spec.cluster.max_parallel,
        switches=_will_switch(spec),
    )


def _will_switch(spec: SweepSpec) -> bool:
    device = known_device(spec, ())
    if device is None:
        ours = ClusterAddress(address=spec.cluster.address).resolve(os.environ) is None
        device = "cpu" if ours and not has_gpu() else "cuda"
    return switches(spec, device)


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


@dataclass(frozen=True, kw_only=True)
class PlannedTime:
    """Server starts that load weights, by what they are for, and the time of everything.

    `settings` are those of the search that no traced server goes on with; `switched` counts the trials on a running
    server.
    """

    baselines: int
    settings: int
    check: int
    traces: int
    confirmations: int
    switched: int
    seconds: float

    @property
    def loads(self) -> int:
        return self.baselines + self.settings + self.check + self.traces + self.confirmations

    def to_json(self) -> dict[str, Any]:
        """`study_launches` of `specsweep plan --json`."""
        names = ("baselines", "settings", "check", "traces", "confirmations")
        return {
            **{name: getattr(self, name) for name in names},
            "all": self.loads,
            "switched": self.switched,
            "seconds": round(self.seconds, 1),
        }


def plan_time(plan: SweepPlan, pace: Pace, extras: StudyExtras | None = None) -> PlannedTime:
    """Every launch priced alike and every switch alike, packed by TP size; a trace like a trial of its kind.

    A group keeps its server for everything that it can be switched to, so each group of a kind loads weights once;
    where servers are switched, the search goes on with the server that was traced last. Baselines, the check, repeats
    and confirmations are launches of their own. Retries and the verdicts' own trials are not counted.
    """
    extras = extras or StudyExtras()
    repeats = plan.servers.repeats
    searched = [group.effective for group in plan.servers.groups]
    if plan.suspect is not None and plan.suspect_is_extra:
        searched.append(plan.suspect.effective)
    traced = [server_kind(config) for config in extras.traces]
    trace_loads = sum(kind != before for before, kind in zip([None, *traced], traced, strict=False))
    trace_switches = len(traced) - trace_loads
    settings = switched = 0
    seconds = trace_loads * pace.seconds_per_launch + trace_switches * pace.seconds_per_switch
    for kind, count in Counter(server_kind(config) for config in searched).items():
        trials, groups = count * repeats, pace.groups(kind[0])
        goes_on = pace.switches and bool(traced) and traced[-1] == kind
        loaded = (min(groups, count) + trials - count if pace.switches else trials) - goes_on
        settings += loaded
        switched += trials - loaded
        seconds += (loaded * pace.seconds_per_launch + (trials - loaded) * pace.seconds_per_switch) / groups
    baselines = [baseline.tp_size for baseline in (*plan.servers.baselines, *plan.extra_baselines)]
    seconds += sum(plan.baseline_launches * pace.seconds_per_launch / pace.groups(size) for size in baselines)
    seconds += (extras.check + plan.confirmations) * pace.seconds_per_launch
    return PlannedTime(
        baselines=len(baselines) * plan.baseline_launches,
        settings=settings,
        check=int(extras.check),
        traces=trace_loads,
        confirmations=plan.confirmations,
        switched=switched,
        seconds=seconds,
    )
