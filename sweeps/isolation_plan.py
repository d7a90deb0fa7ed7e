"""What an isolation would compare and run."""

from __future__ import annotations

from dataclasses import dataclass

from results.probed_feed import ProbedFeed
from search_spaces.config import EngineConfig
from sweeps.corner_trials import PlannedCorner
from sweeps.feed_probes import ProbePlan
from sweeps.isolation_ends import IsolationEnds
from sweeps.trace_plans import PlannedTrace


@dataclass(frozen=True, kw_only=True)
class IsolationPlan:
    """What an isolation would compare and do. `probes` and `traces` are to be run, `feeds` are kept from before.

    `not_traced` is why nothing is, where traces are wanted.
    """

    ends: IsolationEnds
    corners: tuple[PlannedCorner, ...]
    probes: tuple[ProbePlan, ...]
    feeds: tuple[ProbedFeed, ...]
    traces: tuple[PlannedTrace, ...] = ()
    not_traced: str = ""

    @property
    def needs_servers(self) -> bool:
        return bool(self.probes or self.traces) or any(item.state == "to run" for item in self.corners)

    @property
    def servers(self) -> tuple[EngineConfig, ...]:
        """Every configuration that will be started or switched to."""
        wanted = [item.measured.config for item in self.corners if item.state == "to run"]
        recorded = [config for plan in self.probes for config in plan.configs]
        return tuple(dict.fromkeys([*wanted, *recorded, *(trace.config for trace in self.traces)]))
