"""On whose account servers are started beside the search: what they may cost, and where their time is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from results.store import StudyFolder
from results.study_surface import traces_path
from results.trace_launches import read_trace_launches
from sweeps.budget import Budget, Spent, launch_limit
from sweeps.no_search import NoSearch
from sweeps.seams import Study
from sweeps.tally import DriverTime, Tally


@dataclass(frozen=True, kw_only=True)
class Account:
    """`of` is the study that is held open, None where none is: its time is then not kept. Trials have no limit here."""

    of: Study | None = None
    budget: Budget = field(default_factory=Budget)
    heartbeat: Callable[[], None] = lambda: None

    def study(self, name: str) -> NoSearch:
        return NoSearch(name, self.of)

    @contextmanager
    def open(self, folder: StudyFolder) -> Iterator[OpenAccount]:
        """For servers without a record, such as a probe's; the time in the context is kept."""
        time = DriverTime(self.study(folder.path.name))
        launches = Tally(folder.records(), launches_before=trace_loads(folder)).launches
        try:
            yield OpenAccount(account=self, time=time, launches=launches)
        finally:
            time.keep()


@dataclass(frozen=True, kw_only=True)
class OpenAccount:
    """`launches` are those of the study before."""

    account: Account
    time: DriverTime
    launches: int

    def may_launch(self, launched: int = 0) -> bool:
        """Whether the budget allows a further launch after `launched` of these."""
        spent = Spent(trials=0, launches=self.launches + launched, elapsed_s=self.time.elapsed_s)
        return launch_limit(self.account.budget, spent) is None

    def may_begin(self, launched: int, starts_a_server: bool) -> bool:
        """The same for work that may do without a launch: only time can forbid it then."""
        if starts_a_server:
            return self.may_launch(launched)
        budget = replace(self.account.budget, launches=None)
        return launch_limit(budget, Spent(trials=0, launches=0, elapsed_s=self.time.elapsed_s)) is None

    def beat(self) -> None:
        """To be called often."""
        self.account.heartbeat()
        if self.time.is_due:
            self.time.keep()


def trace_loads(folder: StudyFolder) -> int:
    """Servers that were started for traces."""
    return read_trace_launches(traces_path(folder)).weight_loads
