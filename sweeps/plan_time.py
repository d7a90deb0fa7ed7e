"""How long a plan takes, roughly: what loads weights, what a running server is switched to, how many run at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from actors.engines.devices import has_gpu
from search_spaces.config import EngineConfig
from sweeps.planning import SweepPlan
from sweeps.spec_schema import SweepSpec

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
    engine = spec.engine
    if engine.switching != "auto":
        return engine.switching == "on"
    if engine.device != "auto":
        return engine.device == "cpu"
    return spec.cluster.address is None and not has_gpu()


@dataclass(frozen=True, kw_only=True)
class PlannedTime:
    """`loads` are the launches that load weights, confirmations included."""

    loads: int
    seconds: float


def plan_time(plan: SweepPlan, pace: Pace) -> PlannedTime:
    """Every launch priced alike and every switch alike, packed by TP size.

    A group keeps its server for everything with the same TP size, flags and number of taps
    (`actors.engines.live_control.why_not_switchable`), so each group of a kind loads weights once. Baselines,
    repeats and confirmations are launches of their own.
    """
    repeats = plan.servers.repeats
    searched = [group.effective for group in plan.servers.groups]
    if plan.suspect is not None and plan.suspect_is_extra:
        searched.append(plan.suspect.effective)
    loads, seconds = 0, 0.0
    for (tp_size, _, _), count in Counter(_kind(config) for config in searched).items():
        trials, groups = count * repeats, pace.groups(tp_size)
        loaded = min(groups, count) + trials - count if pace.switches else trials
        loads += loaded
        seconds += (loaded * pace.seconds_per_launch + (trials - loaded) * pace.seconds_per_switch) / groups
    for baseline in (*plan.servers.baselines, *plan.extra_baselines):
        loads += plan.baseline_launches
        seconds += plan.baseline_launches * pace.seconds_per_launch / pace.groups(baseline.tp_size)
    loads += plan.confirmations
    seconds += plan.confirmations * pace.seconds_per_launch
    return PlannedTime(loads=loads, seconds=seconds)


def _kind(config: EngineConfig) -> tuple[int, object, int]:
    return config.tp_size, config.flags, len(config.layout or ())
