"""The trials of a search as a plan counts them: what loads weights, what runs on a running server, within limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from search_spaces.config import Flags
from sweeps.pace import Pace
from sweeps.planning import SweepPlan
from sweeps.switching import server_kind

ServerKind = tuple[int, Flags, int]


class LaunchesLeft:
    """What is left of `budget.launches`; `left` is None without a limit."""

    def __init__(self, limit: int | None) -> None:
        self.left = limit
        self._set_aside = 0

    @property
    def spent(self) -> bool:
        """Whether no launch comes any more."""
        return self.left == 0 and not self._set_aside

    def take(self, wanted: int) -> int:
        """As many of the wanted ones as are left."""
        if self.left is None:
            return wanted
        taken = min(wanted, self.left)
        self.left -= taken
        return taken

    def set_aside(self, wanted: int) -> int:
        """The same for launches that come while others are taken."""
        taken = self.take(wanted)
        self._set_aside += taken
        return taken


@dataclass(frozen=True, kw_only=True)
class KindTrials:
    """Trials on one kind of server, `groups` at once: those that load weights, and those on a running server.

    `goes_on`: such a server runs when the search begins.
    """

    groups: int
    goes_on: bool
    loads: int
    switches: int

    def within(self, launches: LaunchesLeft, trials: int) -> KindTrials:
        """The loads that launches and trials leave. Nothing is switched on a server that is not there, nor after the
        last launch: no trial starts then."""
        loads = launches.take(min(self.loads, trials))
        followed = loads - int(launches.spent)
        return replace(self, loads=loads, switches=self.switches if self.goes_on or followed > 0 else 0)


@dataclass(frozen=True, kw_only=True)
class PlannedSearch:
    """The trials of the search and of the suspect by kind of server, those that take longest first.

    `trials` is how many of them a limit of the search's leaves. `begins_with` counts the launches that come before the
    second baseline of a TP size. `comes_back` says after how many baselines a search that was on a running server loads
    weights again; these are among the loads.
    """

    kinds: tuple[KindTrials, ...]
    trials: int
    comes_back: int
    begins_with: int

    @classmethod
    def of(cls, plan: SweepPlan, pace: Pace, *, on_server: ServerKind | None, limit: int | None) -> PlannedSearch:
        """`on_server` is the kind that runs when the search begins."""
        kinds = _all_kinds(plan, pace, on_server)
        trials = sum(kind.loads + kind.switches for kind in kinds)
        if limit is not None:
            trials = min(trials, limit + plan.suspect_trials)
        # after each baseline between the first and the last one
        between = min(plan.baseline_launches - 2, trials - 1) if pace.switches and plan.baselines else 0
        left = comes_back = max(0, between)
        for i, kind in enumerate(kinds):
            again = min(left, kind.switches)
            kinds[i] = replace(kind, loads=kind.loads + again, switches=kind.switches - again)
            left -= again
        begins_with = int(on_server is None) if pace.switches else 1 + plan.suspect_trials
        return cls(kinds=tuple(kinds), trials=trials, comes_back=comes_back - left, begins_with=begins_with)

    def within(self, launches: LaunchesLeft) -> tuple[KindTrials, ...]:
        """What the launches leave, which are taken; those that load weights first."""
        if launches.spent:
            return ()
        trials = self.trials
        loaded = []
        for kind in self.kinds:
            loaded.append(kind.within(launches, trials))
            trials -= loaded[-1].loads
        within = []
        for kind in loaded:
            within.append(replace(kind, switches=min(kind.switches, trials)))
            trials -= within[-1].switches
        return tuple(within)


def later_baselines(plan: SweepPlan, search: PlannedSearch, left: int | None) -> int:
    """How many baselines after the first of each TP size come within the launches left, in the order in which they are
    due: something is measured first, and the search comes back after all but the last."""
    turns = plan.baseline_launches - 1
    if left is None:
        return plan.baselines * turns
    left = max(0, left - search.begins_with)
    made = 0
    for turn in range(turns):
        taken = min(plan.baselines, left)
        made, left = made + taken, left - taken
        if turn < search.comes_back:
            left = max(0, left - 1)
    return made


def _all_kinds(plan: SweepPlan, pace: Pace, on_server: ServerKind | None) -> list[KindTrials]:
    """Without limits and later baselines."""
    repeats = plan.servers.repeats
    configs = [group.effective for group in plan.servers.groups]
    if plan.suspect is not None and plan.suspect_is_extra:
        configs.append(plan.suspect.effective)
    found = []
    for kind, count in Counter(server_kind(config) for config in configs).items():
        trials, groups = count * repeats, pace.groups(kind[0])
        goes_on = pace.switches and on_server == kind
        loads = (min(groups, count) + trials - count if pace.switches else trials) - goes_on
        found.append(KindTrials(groups=groups, goes_on=goes_on, loads=loads, switches=trials - loads))
    return sorted(found, key=lambda kind: kind.groups)
