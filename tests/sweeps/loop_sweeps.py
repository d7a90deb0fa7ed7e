"""Sweeps of the driver's loop against doubles, session by session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from search_doubles import SMALL, Events, InstantPool, MemoryStore, MemoryStudy, fail, resolve, succeed
from trial_builders import WORKLOAD, baseline

from actors.job import TrialJob, TrialOutcome
from results.failures import Failure, Kind
from results.objective import Objective
from results.records import TrialRecord
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan
from sweeps.tasks import FixedTrial

BASELINE = FixedTrial(base="baseline-tp1", role="baseline", setting=None, config=baseline())


class Sweep:
    """One session with doubles; `again` makes the next one over the same study and records."""

    def __init__(self, records: Sequence[TrialRecord] = (), **options: Any) -> None:
        self.repeats = options.pop("repeats", 1)
        self.plan = {"workload": WORKLOAD, "budget": Budget(), "retries": 2, "fixed": (BASELINE,), **options}
        self.store = MemoryStore(records)
        self.legal = LegalSpace(SMALL, resolve)
        self.ledger = Ledger(records, repeats=self.repeats)
        self.study = MemoryStudy(self.legal, self.ledger)
        self.pool, self.events, self.stop = InstantPool(), Events(), StopRequest()
        self.now = [0.0]

    def run(self) -> str:
        loop = SweepLoop(
            study=self.study,
            store=self.store,
            pool=self.pool,
            legal=self.legal,
            ledger=self.ledger,
            plan=LoopPlan(objective=Objective(), repeats=self.repeats, **self.plan),
            observer=self.events,
            stop=self.stop,
            heartbeat=lambda: None,
            clock=lambda: self.now[0],
        )
        return loop.run()

    def again(self) -> Sweep:
        after = Sweep(self.store.records(), repeats=self.repeats, **self.plan)
        after.study.kept, after.study.attrs = self.study.kept, self.study.attrs
        return after

    @property
    def launched(self) -> list[str]:
        return [job.trial_id for job in self.pool.launched]


def failing(kind: Kind, times: int = 99, on: Callable[[TrialJob], bool] = lambda job: True) -> Any:
    left = [times]

    def run(job: TrialJob) -> TrialOutcome:
        if on(job) and left[0] > 0:
            left[0] -= 1
            return fail(job, Failure(phase="launch", kind=kind, message=f"because of {kind}"))
        return succeed(job)

    return run


def searching(job: TrialJob) -> bool:
    return not job.config.is_baseline
