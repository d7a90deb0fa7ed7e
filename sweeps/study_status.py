"""Where a study stands, read from its folder without disturbing the driver that may be running it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from results.measured_settings import MeasuredSetting
from results.objective import METRIC_WORDS, Objective
from results.ranked_settings import RankedSetting
from results.ranking import rank
from results.records import TrialRecord
from results.study_surface import traces_path
from results.trace_launches import read_trace_launches
from results.traces import Trace, TraceFacts, find_traces
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import InputError
from search_spaces.sglang_rules import RuleBook
from sweeps.baselines import both_ways, fixed_trials
from sweeps.home import StudyPlace
from sweeps.lease import Owner, folder_owner
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.objectives import objective_of
from sweeps.pace import pace_of
from sweeps.plan_time import expected_trials
from sweeps.planning import make_plan
from sweeps.spec_schema import SweepSpec
from sweeps.study_extras import StudyExtras, extras_of
from sweeps.switching import known_device, switches
from sweeps.tasks import open_tasks
from sweeps.terminal import show_config
from sweeps.trace_choice import trace_row

STATUS_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """One look at a study. `left` are trials that the space and the fixed trials still hold, the check of switching
    included, budget aside; None when the models are not on this machine and it cannot be told.

    `weight_loads` are the server starts that its records and its traces cost so far, `trace_loads` those of the traces.
    `traces` are rows of what was traced and of what a search by surface still wants to.
    """

    place: StudyPlace
    objective: Objective
    owner: Owner | None
    records: int
    failed: int
    left: int | None
    weight_loads: int
    trace_loads: int
    traces: tuple[TraceStanding, ...]
    best: RankedSetting | None
    mlflow_is_stale: bool

    def to_json(self) -> dict[str, Any]:
        owner = self.owner and {"host": self.owner.host, "pid": self.owner.pid}
        return {
            "schema": STATUS_SCHEMA,
            "study": self.place.name,
            "folder": str(self.place.folder),
            "running": self.owner is not None,
            "driver": owner,
            "records": self.records,
            "failed": self.failed,
            "left": self.left,
            "study_launches": {
                "records": self.weight_loads - self.trace_loads,
                "traces": self.trace_loads,
                "all": self.weight_loads,
            },
            "traces": [trace.to_json() for trace in self.traces],
            "objective": self.objective.metric,
            "best": None if self.best is None else _best_json(self.best),
            "mlflow_is_stale": self.mlflow_is_stale,
        }

    def to_text(self) -> str:
        rows = [
            ("folder", str(self.place.folder)),
            ("driver", "none runs" if self.owner is None else f"running: {self.owner}"),
            ("launches", f"{self.records} recorded ({self.failed} failed), {_count(self.left)} left in the space"),
            ("weights", f"loaded {self.weight_loads} times" + self._of_traces()),
            ("best so far", "nothing measured yet" if self.best is None else self._show_best(self.best)),
        ]
        if self.mlflow_is_stale:
            rows.append(("MLflow", f"misses something: specsweep sync {self.place.name}"))
        if self.owner is None:
            todo = "report" if self.left == 0 else "resume"
            rows.append(("next", f"specsweep {todo} {self.place.name}"))
        return "\n".join([f"Study {self.place.name}", *(f"  {name:<12} {text}" for name, text in rows)])

    def _of_traces(self) -> str:
        if not self.traces and not self.trace_loads:
            return ""
        begun = sum(trace.prompts > 0 for trace in self.traces)
        prompts = sum(trace.prompts for trace in self.traces)
        return f", {self.trace_loads} of them to trace; {begun} of {len(self.traces)} traces begun, {prompts} prompts"

    def _show_best(self, best: RankedSetting) -> str:
        value = "" if best.value is None else f", {METRIC_WORDS[self.objective.metric]} {best.value.value:.4g}"
        length = "" if best.accept_length is None else f", accept length {best.accept_length.value:.3f}"
        return f"{show_config(best.setting.effective)}{value}{length}"


def read_status(place: StudyPlace) -> StudyStatus:
    """Reads spec and records. InputError when one of them is unreadable."""
    spec, folder = place.read_spec(), place.records
    records = folder.records()
    objective = objective_of(spec)
    outlook = _outlook(spec, records)
    trace_loads = read_trace_launches(traces_path(folder)).weight_loads
    return StudyStatus(
        place=place,
        objective=objective,
        owner=folder_owner(folder.lock_path),
        records=len(records),
        failed=sum(not record.ok for record in records),
        left=None if outlook is None else outlook.left,
        weight_loads=trace_loads + sum(record.server_starts for record in records),
        trace_loads=trace_loads,
        traces=_traces(find_traces(traces_path(folder)), () if outlook is None else outlook.extras.traces),
        best=rank(records, objective).choice,
        mlflow_is_stale=folder.stale_view_path.exists(),
    )


def _count(number: int | None) -> str:
    return "an unknown number" if number is None else str(number)


@dataclass(frozen=True, kw_only=True)
class TraceStanding:
    """How far one trace is; `wanted` by the study's own search, and not by a user alone."""

    row: Mapping[str, Any]
    prompts: int
    wanted: bool

    def to_json(self) -> dict[str, Any]:
        return {**self.row, "prompts": self.prompts, "wanted": self.wanted}


def _traces(found: Iterable[Trace], wanted: Iterable[EngineConfig]) -> tuple[TraceStanding, ...]:
    """The wanted ones first; of two workloads' traces the longer counts."""
    rows = [trace_row(config) for config in wanted]
    there = [(_row_of(trace.facts), len(trace.prompts)) for trace in found]
    others = [row for row, _ in there if row not in rows]
    return tuple(
        TraceStanding(
            row=row, prompts=max((count for other, count in there if other == row), default=0), wanted=row in rows
        )
        for row in (*rows, *others)
    )


def _row_of(facts: TraceFacts) -> Mapping[str, Any]:
    triple = Triple(num_steps=facts.num_steps, eagle_topk=facts.eagle_topk, num_draft_tokens=facts.num_steps + 1)
    flags = tuple(sorted((*facts.flags, *facts.parallel)))
    return trace_row(EngineConfig(layout=facts.layout, triple=triple, tp_size=facts.tp_size, flags=flags))


@dataclass(frozen=True, kw_only=True)
class _Outlook:
    """What the plan of a study still holds."""

    left: int
    extras: StudyExtras


def _outlook(spec: SweepSpec, records: tuple[TrialRecord, ...]) -> _Outlook | None:
    try:
        plan = make_plan(spec)
    except InputError:
        return None
    repeats = spec.budget.repeats
    ledger = Ledger(records, repeats=repeats)
    legal = LegalSpace(plan.space, RuleBook(plan.context).resolve)
    pace = pace_of(spec)
    device = known_device(spec, records)
    if device is not None:
        pace = replace(pace, switches=switches(spec, device))
    both = both_ways(legal, plan.suspect_setting) if pace.switches else None
    open_configs = [config for config in legal.configs if ledger.is_open(config)]
    extras = extras_of(spec, plan, pace)
    expected = expected_trials(plan, pace, extras, spec.budget.limits)
    fixed = fixed_trials(plan, legal, records, repeats=plan.baseline_launches, expected_trials=expected, both=both)
    left = sum(repeats - ledger.launches(config) for config in open_configs) + len(open_tasks(fixed, records))
    return _Outlook(left=left, extras=extras)


def _best_json(best: RankedSetting) -> dict[str, Any]:
    setting: MeasuredSetting = best.setting
    triple, layout = setting.effective.triple, setting.effective.layout
    return {
        "trial_ids": list(setting.trial_ids),
        "layout": None if layout is None else list(layout),
        "num_steps": triple and triple.num_steps,
        "eagle_topk": triple and triple.eagle_topk,
        "num_draft_tokens": triple and triple.num_draft_tokens,
        "tp_size": setting.effective.tp_size,
        "flags": dict(setting.effective.flags),
        "value": None if best.value is None else best.value.value,
        "accept_length": None if best.accept_length is None else best.accept_length.value,
    }
