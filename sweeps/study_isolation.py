"""An isolation of a study, step by step: choose the ends, run what is missing, probe, conclude, keep the verdicts.

Whoever runs it holds the study and gives the pool (`sweeps.isolating`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from actors.load.workload import Workload
from results.attribution import DEFAULT_MARGIN
from results.corners import repeat_noise
from results.isolation import Isolation, IsolationCase, conclude
from results.isolation_report import ISOLATION_FILE, isolation_json
from results.isolation_rows import baseline_rows, offline_row
from results.objective import Objective
from results.ranking import rank
from results.store import StudyFolder
from results.study_surface import traces_path
from search_spaces.errors import EnvironmentProblem
from sweeps.account import Account, trace_loads
from sweeps.continuation import check_models
from sweeps.corner_trials import matched_workload, plan_corners, run_corner_trials, trials_to_run
from sweeps.feed_probes import kept_probe, plan_probe, run_probes, save_probe
from sweeps.groups import servers_of
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest
from sweeps.isolation_ends import IsolationEnds, choose_ends, given_taps, trained_on
from sweeps.isolation_plan import IsolationPlan
from sweeps.objectives import objective_of
from sweeps.observers import Observer
from sweeps.planning import SweepPlan, make_plan
from sweeps.seams import Pool
from sweeps.spec_schema import SweepSpec
from sweeps.tp_traces import TpTraces, plan_tp_traces, tp_agreements
from sweeps.trace_plans import PlannedTrace
from sweeps.tracing import known_texts, run_traces
from sweeps.workloads import make_workload


@dataclass(frozen=True, kw_only=True)
class IsolationRequest:
    """What the user says beside the spec. `suspect` and `reference` are trial ids or settings in YAML, `trained_on`
    taps as text, `offline` the draft's accuracy by position. `probe` also reads what the draft is fed, `trace` what it
    proposes at the suspect's TP size and at a smaller one."""

    suspect: str | None = None
    reference: str | None = None
    trained_on: str | None = None
    offline: tuple[float, ...] = ()
    margin: float = DEFAULT_MARGIN
    probe: bool = True
    trace: bool = False


class StudyIsolation:
    """One isolation of a study. Reads the records anew for every step, so each step sees what the last one wrote.

    InputError for taps that are none, and for models that are not the study's any more.
    """

    def __init__(self, spec: SweepSpec, place: StudyPlace, request: IsolationRequest) -> None:
        self.spec, self.place, self.request = spec, place, request
        if request.trained_on is not None:
            given_taps(request.trained_on)
        check_models(place, spec)
        self.sweep: SweepPlan = make_plan(spec)
        self.folder: StudyFolder = place.records
        self.objective: Objective = objective_of(spec)
        self.workload: Workload = matched_workload(make_workload(spec), spec.objective_concurrency)
        self._ends: IsolationEnds | None = None

    @property
    def can_launch(self) -> bool:
        """False for a study of a server that somebody else started: verdicts then rest on what is measured."""
        return self.spec.engine.kind == "sglang"

    @property
    def probe_key(self) -> str:
        """A probe holds for the same prompts only."""
        return self.workload.prompt_set_hash

    def plan(self, *, probe: bool | None = None) -> IsolationPlan:
        """What is to be done, as the records stand. InputError when there is nothing to compare."""
        records = self.folder.records()
        if self._ends is None:
            # chosen once: the corners that are run must not choose another reference
            ranking = rank(records, self.objective, rows_of=lru_cache(maxsize=32)(self.folder.rows))
            request = self.request
            self._ends = choose_ends(self.sweep, ranking, records, suspect=request.suspect, reference=request.reference)
        ends = self._ends
        wanted = [plan_probe(ends.suspect, self.sweep.context)] if self._wants_probe(probe) else []
        kept = {plan: [kept_probe(self.folder, c, self.probe_key) for c in plan.configs] for plan in wanted}
        wished = self._traces(ends) if self.request.trace and probe is not False else TpTraces()
        return IsolationPlan(
            ends=ends,
            corners=plan_corners(ends, records, self.folder.rows, self.sweep.context, self.workload),
            probes=tuple(plan for plan, feeds in kept.items() if None in feeds),
            feeds=tuple(feed for feeds in kept.values() if None not in feeds for feed in feeds if feed is not None),
            traces=wished.plans,
            not_traced=wished.problem,
        )

    def run(
        self, plan: IsolationPlan, pool: Pool, observer: Observer, stop: StopRequest, account: Account | None = None
    ) -> IsolationPlan | None:
        """Run what is missing in an open pool, as far as the account's budget goes (by default: without limit); None
        when told to stop. What was measured stays."""
        account = account or Account()
        reason = run_corner_trials(
            trials_to_run(plan.corners),
            study=self.spec.study,
            store=self.folder,
            pool=pool,
            workload=self.workload,
            objective=self.objective,
            retries=self.spec.budget.retries,
            observer=observer,
            stop=stop,
            account=account,
            launches_before=trace_loads(self.folder),
        )
        if reason == "interrupted":
            return None
        if reason in ("launches", "wall_time_s"):
            observer.said(f"budget.{reason} is spent: the verdict rests on what is measured")
        # each right beside the probe at its TP size, so that no server is started for it alone
        served = plan.ends.suspect.tp_size
        self._trace([trace for trace in plan.traces if trace.config.tp_size == served], pool, observer, stop, account)
        with account.open(self.folder) as opened:
            feeds = run_probes(
                plan.probes,
                pool=pool,
                workload=self.workload,
                target=self.sweep.context.target,
                stop=stop,
                keep=lambda feed: save_probe(self.folder, feed, self.probe_key),
                account=opened,
            )
        self._trace([trace for trace in plan.traces if trace.config.tp_size < served], pool, observer, stop, account)
        if stop.requested:
            return None
        measured = self.plan(probe=False)
        return IsolationPlan(ends=measured.ends, corners=measured.corners, probes=(), feeds=(*plan.feeds, *feeds))

    def conclude(self, plan: IsolationPlan) -> Isolation:
        """Verdicts from what is measured, kept in the study's folder, where `report` finds them."""
        workload_id = self.workload.workload_id
        records = self.folder.records()
        corners = {item.corner: item.measured for item in plan.corners}
        rows = baseline_rows(records, tp_size=plan.ends.suspect.tp_size, workload_id=workload_id)
        if self.request.offline:
            rows.append(offline_row(self.request.offline))
        isolation = conclude(
            IsolationCase(
                study=self.spec.study,
                target=self.sweep.context.target,
                suspect=plan.ends.suspect,
                reference=plan.ends.reference,
                chosen=plan.ends.chosen,
                chosen_as=plan.ends.chosen_as,
                corners=corners,
                feeds=plan.feeds,
                trained=trained_on(self.request.trained_on, records, workload_id),
                margin=self.request.margin,
                noise=repeat_noise(corners.values()),
                more_rows=tuple(rows),
                agreements=tp_agreements(self.folder, plan.ends.suspect),
            )
        )
        content = json.dumps(isolation_json(isolation), indent=1, ensure_ascii=False, allow_nan=False)
        self.folder.write_file(self.folder.path / ISOLATION_FILE, content + "\n")
        return isolation

    def _traces(self, ends: IsolationEnds) -> TpTraces:
        if not self.can_launch:
            return TpTraces(problem="only a server that specsweep starts can be traced")
        servers = (*servers_of(self.sweep), ends.reference)
        sizes = [config.tp_size for config in servers if config.triple is not None]
        return plan_tp_traces(self.folder, ends.suspect, self.sweep.context, self.workload, sizes)

    def _trace(
        self, plans: Sequence[PlannedTrace], pool: Pool, observer: Observer, stop: StopRequest, account: Account
    ) -> None:
        """What a trace fails for is said, also where no trace could succeed here; the verdicts then do without it."""
        if not plans or stop.requested:
            return
        tp_size, workload = plans[0].config.tp_size, self.workload
        try:
            with account.open(self.folder) as opened:
                run_traces(
                    plans,
                    pool=pool,
                    traces=traces_path(self.folder),
                    workload=workload,
                    target=self.sweep.context.target,
                    expected=known_texts(self.folder.records(), self.folder.rows, workload.workload_id, tp_size),
                    stop=stop,
                    retries=self.spec.budget.retries,
                    say=observer.said,
                    heartbeat=opened.beat,
                    may_begin=opened.may_begin,
                )
        except EnvironmentProblem as problem:
            observer.said(f"nothing more is traced at tp {tp_size}: {problem}")

    def _wants_probe(self, probe: bool | None) -> bool:
        return self.can_launch and (self.request.probe if probe is None else probe)
