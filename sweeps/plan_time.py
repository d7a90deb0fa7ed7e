"""How long a plan takes, roughly: what loads weights, what a running server is switched to, how many run at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sweeps.budget import Budget
from sweeps.pace import Pace
from sweeps.planned_search import LaunchesLeft, PlannedSearch, ServerKind, later_baselines
from sweeps.planning import SweepPlan
from sweeps.study_extras import StudyExtras
from sweeps.switching import server_kind


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

    A group keeps its server for everything that it can be switched to, so each group of a kind loads weights once, and
    once more after each later baseline; where servers are switched, the search goes on with the server that was traced
    last. Baselines, the check, repeats and confirmations are launches of their own. Retries and the verdicts' own
    trials are not counted.

    Within a `budget` no number is greater than what it leaves at most: which settings the search will choose is not
    known, so those that load weights are counted first, of the TP size that takes longest. Launches go to the first
    baselines, the check and traces, then to settings and later baselines as they are due (`sweeps.baselines`), then to
    confirmations, and nothing follows the last one that `budget.launches` allows. `budget.wall_time_s` ends `seconds`
    alone: what fits into it depends on prices that are a guess.
    """
    extras = extras or StudyExtras()
    launches = LaunchesLeft(budget.launches)
    sizes = sorted(baseline.tp_size for baseline in (*plan.servers.baselines, *plan.extra_baselines))
    baselines = launches.take(min(1, len(sizes)))
    check = launches.take(int(extras.check))
    traced, trace_loads = _traced([server_kind(config) for config in extras.traces], launches)
    baselines += launches.take(len(sizes[1:]))
    search = PlannedSearch.of(plan, pace, on_server=traced[-1] if traced else None, limit=budget.trials)
    later = launches.set_aside(later_baselines(plan, search, launches.left))
    searched = search.within(launches)
    baselines += later
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


def expected_trials(plan: SweepPlan, pace: Pace, extras: StudyExtras, budget: Budget) -> int:
    """Trials that the search makes within a budget; baselines are spread over them. See `SweepPlan.expected_trials`."""
    whole = plan_time(plan, pace, extras)
    return plan.expected_trials(budget, beside=whole.check + whole.traces, on_running=whole.switched)


def _traced(kinds: list[ServerKind], launches: LaunchesLeft) -> tuple[list[ServerKind], int]:
    """The kinds of server that traces run on, as far as launches go, and how many servers they start."""
    traced: list[ServerKind] = []
    loads = 0
    for kind in kinds:
        if not traced or kind != traced[-1]:
            if not launches.take(1):
                break
            loads += 1
        traced.append(kind)
    return traced, loads
