"""What the budget leaves of a plan, and which limit cuts what. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sweeps.budget import Budget, Limit
from sweeps.pace import Pace
from sweeps.plan_time import PlannedTime, plan_time
from sweeps.planning import SweepPlan
from sweeps.study_extras import StudyExtras


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A limit that ends the study before everything is done: `within` it `of` what would be done without it.

    Trials of the search for `trials`, server starts for `launches`, seconds for `wall_time_s`.
    """

    limit: Limit
    within: float
    of: float

    def to_json(self) -> dict[str, Any]:
        return {"limit": self.limit, "within": self.within, "of": round(self.of, 1)}


def budget_cuts(plan: SweepPlan, pace: Pace, extras: StudyExtras, budget: Budget) -> tuple[Cut, ...]:
    """What each limit cuts of what the ones before it leave."""
    loads = plan_time(plan, pace, extras, replace(budget, launches=None)).loads
    seconds = plan_time(plan, pace, extras, replace(budget, wall_time_s=None)).seconds
    limits: tuple[tuple[Limit, float | None, float], ...] = (
        ("trials", budget.trials, plan.possible_trials),
        ("launches", budget.launches, loads),
        ("wall_time_s", budget.wall_time_s, seconds),
    )
    return tuple(
        Cut(limit=limit, within=within, of=of) for limit, within, of in limits if within is not None and within < of
    )


def within_budget_json(time: PlannedTime, cuts: tuple[Cut, ...]) -> dict[str, Any]:
    """`within_budget` of `specsweep plan --json`."""
    return {"launches": time.trials, **time.to_json(), "cuts": [cut.to_json() for cut in cuts]}


def plan_json(plan: SweepPlan, pace: Pace, extras: StudyExtras, budget: Budget) -> dict[str, Any]:
    """What `specsweep plan --json` prints."""
    within = plan_time(plan, pace, extras, budget)
    return plan.to_json() | {
        "study_launches": plan_time(plan, pace, extras).to_json(),
        "within_budget": within_budget_json(within, budget_cuts(plan, pace, extras, budget)),
        "traces": extras.to_json(),
    }
