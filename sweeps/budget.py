"""The budget: how much a study may cost, over all sessions of its drivers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Limit = Literal["trials", "launches", "wall_time_s"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits; None is no limit. `trials` are those of the search, answered ones included; `launches` are server starts,
    baselines and retries included; `wall_time_s` is the time drivers have spent, after which nothing new starts."""

    trials: int | None = None
    launches: int | None = None
    wall_time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What has been used, running trials included."""

    trials: int
    launches: int
    elapsed_s: float


def launch_limit(budget: Budget, spent: Spent) -> Limit | None:
    """The limit that forbids any further launch; None when one may start."""
    if budget.launches is not None and spent.launches >= budget.launches:
        return "launches"
    if budget.wall_time_s is not None and spent.elapsed_s >= budget.wall_time_s:
        return "wall_time_s"
    return None


def search_limit(budget: Budget, spent: Spent) -> Limit | None:
    """The limit that forbids a further trial of the search; None when one may start."""
    if budget.trials is not None and spent.trials >= budget.trials:
        return "trials"
    return launch_limit(budget, spent)


def trials_left(budget: Budget, spent: Spent, possible: int) -> int:
    """How many of `possible` further launches the budget allows, as far as counts can tell."""
    limits = [possible]
    if budget.trials is not None:
        limits.append(budget.trials - spent.trials)
    if budget.launches is not None:
        limits.append(budget.launches - spent.launches)
    return max(0, min(limits))
