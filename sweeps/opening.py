"""How a sweep opens when it searches by surface: baseline and check of the smallest TP size, then traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from actors.load.workload import Workload
from results.objective import Objective
from results.store import StudyFolder
from results.study_surface import traces_path
from search_spaces.config import EngineConfig
from search_spaces.rulings import RuleContext
from sweeps.account import Account, trace_loads
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan
from sweeps.no_search import NoSearch, NoSpace
from sweeps.observers import Observer, Observers
from sweeps.progress import Standing
from sweeps.seams import Pool
from sweeps.study import SearchStudy
from sweeps.tasks import FixedTrial
from sweeps.trace_choice import TraceChoice, trace_configs
from sweeps.trace_plans import plan_traces
from sweeps.tracing import TraceRun, known_texts, nothing_to_trace, run_traces


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What runs before the search, in its study, store and groups. What is launched here is known to the `ledger`."""

    study: SearchStudy
    store: StudyFolder
    pool: Pool
    ledger: Ledger
    workload: Workload
    objective: Objective
    context: RuleContext
    budget: Budget
    retries: int
    observer: Observer
    stop: StopRequest
    heartbeat: Callable[[], None]
    must_launch: Callable[[], bool] = lambda: False

    def measure(self, fixed: Sequence[FixedTrial]) -> None:
        """Run these trials and no others, recorded, retried and resumed as all are."""
        SweepLoop(
            study=NoSearch(self.study.name, self.study),
            store=self.store,
            pool=self.pool,
            legal=NoSpace(),
            ledger=self.ledger,
            plan=LoopPlan(
                workload=self.workload,
                objective=self.objective,
                fixed=tuple(fixed),
                budget=self.budget,
                repeats=1,
                retries=self.retries,
                launches_before=trace_loads(self.store),
            ),
            observer=_Opening(self.observer),
            stop=self.stop,
            heartbeat=self.heartbeat,
            must_launch=self.must_launch,
        ).run()

    def trace(self, configs: Sequence[EngineConfig]) -> TraceRun:
        """Trace the space's layouts and topks at its smallest TP size, as far as the budget goes."""
        traces, workload = traces_path(self.store), self.workload
        wanted = trace_configs(configs, self.context, TraceChoice())
        plans = plan_traces(traces, wanted, workload)
        account = Account(of=self.study, budget=self.budget, heartbeat=self.heartbeat)
        with account.open(self.store) as opened:
            if not any(plan.left for plan in plans) or self.stop.requested or not opened.may_launch():
                return nothing_to_trace(plans)
            known = known_texts(self.store.records(), self.store.rows, workload.workload_id, wanted[0].tp_size)
            return run_traces(
                plans,
                pool=self.pool,
                traces=traces,
                workload=workload,
                target=self.context.target,
                expected=known,
                stop=self.stop,
                retries=self.retries,
                say=self.observer.said,
                heartbeat=opened.beat,
                may_begin=opened.may_begin,
            )


def opening_trials(fixed: Iterable[FixedTrial], tp_size: int) -> list[FixedTrial]:
    """What of the fixed trials comes before the traces: at their TP size the first baseline and the check.

    A suspect is measured after them, as one that the space holds is.
    """
    return [
        trial
        for trial in fixed
        if trial.due_after == 0 and trial.config.tp_size == tp_size and trial.role in ("baseline", "check")
    ]


class _Opening(Observers):
    """Tells on everything but what is left: the search does not know yet."""

    def __init__(self, observer: Observer) -> None:
        super().__init__([observer])

    def standing(self, standing: Standing) -> None:
        super().standing(replace(standing, left=None, time_left_s=None))
