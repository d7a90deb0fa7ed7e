"""How long a plan takes, roughly: what loads weights, what a running server is switched to, how many run at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from search_spaces.config import EngineConfig, Flags
from search_spaces.errors import InputError
from sweeps.budget import Budget
from sweeps.dimensions import contains
from sweeps.pace import Pace
from sweeps.planning import SweepPlan
from sweeps.spec_schema import SweepSpec
from sweeps.switching import follows_surface, has_switches, server_kind
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


@dataclass(frozen=True, kw_only=True)
class PlannedTime:
    """Server starts that load weights, by what they are for, and the time of everything.

    `settings` are those of the search that no traced server goes on with; `switched` counts the trials on a running
    server, `traced` the traces.
    """

    baselines: int
    settings: int
    check: int
    traces: int
    confirmations: int
    switched: int
    traced: int
    seconds: float

    @property
    def loads(self) -> int:
        return self.baselines + self.settings + self.check + self.traces + self.confirmations

    @property
    def trials(self) -> int:
        """Baselines and settings, on a server of their own or not: what `SweepPlan.launches` counts."""
        return self.baselines + self.settings + self.switched

    def to_json(self) -> dict[str, Any]:
        """`study_launches` of `specsweep plan --json`."""
        names = ("baselines", "settings", "check", "traces", "confirmations")
        return {
            **{name: getattr(self, name) for name in names},
            "all": self.loads,
            "switched": self.switched,
            "seconds": round(self.seconds, 1),
        }


NO_LIMIT = Budget()


def plan_time(plan: SweepPlan, pace: Pace, extras: StudyExtras | None = None, budget: Budget = NO_LIMIT) -> PlannedTime:
    """Every launch priced alike and every switch alike, packed by TP size; a trace like a trial of its kind.

    A group keeps its server for everything that it can be switched to, so each group of a kind loads weights once;
    where servers are switched, the search goes on with the server that was traced last. Baselines, the check, repeats
    and confirmations are launches of their own. Retries and the verdicts' own trials are not counted.

    Within a `budget` no number is greater than what it leaves at most: which settings the search will choose is not
    known, so those that load weights are counted first, of the TP size that takes longest. Launches go to the first
    baselines, the check, traces, settings, later baselines and confirmations in this order, and nothing follows the
    last one that `budget.launches` allows.
    """
    extras = extras or StudyExtras()
    launches = _Launches(budget.launches)
    sizes = sorted(baseline.tp_size for baseline in (*plan.servers.baselines, *plan.extra_baselines))
    baselines = launches.take(min(1, len(sizes)))
    check = launches.take(int(extras.check))
    traced, trace_loads = _traced([server_kind(config) for config in extras.traces], launches)
    baselines += launches.take(len(sizes[1:]))
    searched = _searched(plan, pace, traced[-1] if traced else None, launches, budget.trials)
    baselines += launches.take(len(sizes) * (plan.baseline_launches - 1))
    confirmations = launches.take(plan.confirmations)
    seconds = sum(kind.loads * pace.seconds_per_launch / kind.groups for kind in searched)
    seconds += sum(kind.switches * pace.seconds_per_switch / kind.groups for kind in searched)
    seconds += sum(pace.seconds_per_launch / pace.groups(size) for size in (sizes * plan.baseline_launches)[:baselines])
    seconds += (trace_loads + check + confirmations) * pace.seconds_per_launch
    seconds += (len(traced) - trace_loads) * pace.seconds_per_switch
    return PlannedTime(
        baselines=baselines,
        settings=sum(kind.loads for kind in searched),
        check=check,
        traces=trace_loads,
        confirmations=confirmations,
        switched=sum(kind.switches for kind in searched),
        traced=len(traced),
        seconds=seconds if budget.wall_time_s is None else min(seconds, budget.wall_time_s),
    )


class _Launches:
    """What is left of `budget.launches`."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit

    @property
    def spent(self) -> bool:
        return self._left == 0

    def take(self, wanted: int) -> int:
        """As many of the wanted ones as are left."""
        if self._left is None:
            return wanted
        taken = min(wanted, self._left)
        self._left -= taken
        return taken


_ServerKind = tuple[int, Flags, int]


def _traced(kinds: list[_ServerKind], launches: _Launches) -> tuple[list[_ServerKind], int]:
    """The kinds of server that traces run on, as far as launches go, and how many servers they start."""
    traced: list[_ServerKind] = []
    loads = 0
    for kind in kinds:
        if not traced or kind != traced[-1]:
            if not launches.take(1):
                break
            loads += 1
        traced.append(kind)
    return traced, loads


@dataclass(frozen=True, kw_only=True)
class _Searched:
    """Trials on one kind of server, `groups` at once: those that load weights, and those on a running server."""

    groups: int
    goes_on: bool
    loads: int
    switches: int


def _searched(
    plan: SweepPlan, pace: Pace, traced: _ServerKind | None, launches: _Launches, limit: int | None
) -> list[_Searched]:
    """The trials of the search and of the suspect by kind of server, within launches and a limit of the search's."""
    if launches.spent:
        return []
    everything = _all_searched(plan, pace, traced)
    left = sum(kind.loads + kind.switches for kind in everything)
    if limit is not None:
        left = min(left, limit + suspect_trials(plan))
    loaded = []
    for kind in everything:
        loads = launches.take(min(kind.loads, left))
        left -= loads
        serves = kind.goes_on or loads > int(launches.spent)
        loaded.append(replace(kind, loads=loads, switches=kind.switches if serves else 0))
    within = []
    for kind in loaded:
        within.append(replace(kind, switches=min(kind.switches, left)))
        left -= within[-1].switches
    return within


def _all_searched(plan: SweepPlan, pace: Pace, traced: _ServerKind | None) -> list[_Searched]:
    """Without limits; those that take longest first."""
    repeats = plan.servers.repeats
    configs = [group.effective for group in plan.servers.groups]
    if plan.suspect is not None and plan.suspect_is_extra:
        configs.append(plan.suspect.effective)
    found = []
    for kind, count in Counter(server_kind(config) for config in configs).items():
        trials, groups = count * repeats, pace.groups(kind[0])
        goes_on = pace.switches and traced == kind
        loads = (min(groups, count) + trials - count if pace.switches else trials) - goes_on
        found.append(_Searched(groups=groups, goes_on=goes_on, loads=loads, switches=trials - loads))
    return sorted(found, key=lambda kind: kind.groups)


def suspect_trials(plan: SweepPlan) -> int:
    """Trials of a suspect that the search cannot choose as it was asked for; `budget.trials` does not count them."""
    if plan.suspect_setting is None or contains(plan.space, plan.suspect_setting):
        return 0
    return plan.servers.repeats if plan.suspect_is_extra else 1
