"""Matched trials: the corners between suspect and reference that nothing has measured yet, run like any trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from actors.load.workload import Workload
from results.attribution import Corner
from results.corners import MeasuredCorner, corner_configs, measured_corner
from results.measured_settings import RowsOf
from results.objective import Objective
from results.records import TrialRecord
from results.switch_comparison import judge_switching
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.account import Account
from sweeps.interrupts import StopRequest
from sweeps.isolation_ends import IsolationEnds, setting_of_config
from sweeps.ledger import Ledger, counts_as_result
from sweeps.loop import SweepLoop
from sweeps.loop_plan import LoopPlan, Reason
from sweeps.no_search import NoSpace
from sweeps.observers import Observer
from sweeps.recording import Store
from sweeps.seams import Pool
from sweeps.tasks import FixedTrial

State = Literal["measured", "to run", "illegal", "failed"]


@dataclass(frozen=True, kw_only=True)
class PlannedCorner:
    """One corner with what is known of it: `measured` holds earlier trials, `illegal` the rule that forbids it.

    `settled` says that it was run for this already, or failed by its own fault: running it again would bring nothing.
    """

    corner: Corner
    measured: MeasuredCorner
    illegal: str = ""
    settled: bool = False

    @property
    def state(self) -> State:
        # what ended early is measured in full if that can be had: a verdict rests on the prompts of every corner
        if self.measured.pairs and (not self.measured.stopped or self.illegal or self.settled):
            return "measured"
        if self.illegal:
            return "illegal"
        return "failed" if self.settled else "to run"


def matched_workload(workload: Workload, concurrency: int) -> Workload:
    """The study's prompts, greedy, at one concurrency, every prompt sent: what corners are compared on."""
    return replace(workload, temperature=0.0, concurrency=(concurrency,), request_rate=(), half_width=None)


def plan_corners(
    ends: IsolationEnds,
    records: Sequence[TrialRecord],
    rows_of: RowsOf,
    context: RuleContext,
    workload: Workload,
) -> tuple[PlannedCorner, ...]:
    """Every corner over the groups that differ, smallest first, with what the records already say about it."""
    planned = []
    for corner, config in corner_configs(ends.suspect, ends.reference).items():
        ruling = resolve_setting(setting_of_config(config), context)
        illegal = f"illegal: {ruling.message} ({ruling.rule})" if isinstance(ruling, Illegal) else ""
        effective = config if isinstance(ruling, Illegal) else ruling.effective
        measured = measured_corner(
            effective,
            records,
            rows_of,
            workload_id=workload.workload_id,
            concurrency=workload.concurrency[0],
            problem=illegal,
        )
        settled = any(
            record.effective == effective and counts_as_result(record) and (record.role == "corner" or not record.ok)
            for record in records
        )
        planned.append(PlannedCorner(corner=corner, measured=measured, illegal=illegal, settled=settled))
    return tuple(planned)


def trials_to_run(planned: Iterable[PlannedCorner]) -> tuple[FixedTrial, ...]:
    """One trial for every distinct server that is still to be measured; equal TP sizes beside each other."""
    configs = {item.measured.config for item in planned if item.state == "to run"}
    ordered = sorted(configs, key=lambda config: (config.tp_size, config.layout or (), str(config.triple)))
    return tuple(
        FixedTrial(
            base=f"corner-{config.identity[:8]}", role="corner", setting=setting_of_config(config), config=config
        )
        for config in ordered
    )


def run_corner_trials(
    trials: tuple[FixedTrial, ...],
    *,
    study: str,
    store: Store,
    pool: Pool,
    workload: Workload,
    objective: Objective,
    retries: int,
    observer: Observer,
    stop: StopRequest,
    account: Account,
    launches_before: int = 0,
) -> Reason:
    """Run the trials in the sweep's own loop, without a search: recorded, retried and resumed as all trials are, as far
    as the account's budget goes. `launches_before` are server starts without a record."""
    distrusted = not judge_switching(store.records(), store.rows).trusted
    loop = SweepLoop(
        study=account.study(study),
        store=store,
        pool=pool,
        legal=NoSpace(),
        ledger=Ledger(),
        plan=LoopPlan(
            workload=workload,
            objective=objective,
            fixed=trials,
            budget=replace(account.budget, trials=None),
            repeats=1,
            retries=retries,
            launches_before=launches_before,
        ),
        observer=observer,
        stop=stop,
        heartbeat=account.heartbeat,
        must_launch=lambda: distrusted,
    )
    return loop.run()
