"""From a task to the job that measures it, beside what has been measured so far. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from actors.job import TrialJob
from results.records import TrialRecord
from search_spaces.config import EngineConfig
from sweeps.loop_plan import LoopPlan
from sweeps.rivals import best_so_far
from sweeps.tasks import Task


def job_of(task: Task, plan: LoopPlan, records: Sequence[TrialRecord], *, must_launch: bool) -> TrialJob:
    """The job of one task. A running server may be switched for it, unless the task or `must_launch` forbids that or
    the configuration was measured before; a trial of the search may end early beside the best one so far."""
    searching = task.role == "search" and plan.workload.half_width is not None
    return TrialJob(
        trial_id=task.trial_id,
        config=task.config,
        workload=plan.workload,
        fresh=task.fresh or must_launch or _was_measured(task.config, records),
        rival=best_so_far(records, plan.objective) if searching else None,
    )


def _was_measured(config: EngineConfig, records: Sequence[TrialRecord]) -> bool:
    """A repeat is to tell how launches differ: not by the server that runs already. After a check it is no repeat:
    the setting is then measured by a switch, which is what is checked."""
    return any(record.cells and record.effective == config for record in records if record.role != "check")
