"""What the driver's loop is to do in one session, and how the session may end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from actors.load.workload import Workload
from results.objective import Objective
from sweeps.budget import Budget
from sweeps.tasks import FixedTrial

Reason = Literal["exhausted", "trials", "launches", "wall_time_s", "gain", "interrupted"]
"""Why a session ended: a limit of the budget, nothing left, nothing left that gains enough, or a request to stop."""


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """What one sweep is to do, beyond what the search chooses. `launches_before` are server starts without a record,
    such as a trace's."""

    workload: Workload
    objective: Objective
    fixed: tuple[FixedTrial, ...]
    budget: Budget
    repeats: int
    retries: int
    confirmations: int = 0
    launches_before: int = 0
