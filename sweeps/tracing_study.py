"""Tracing a study's space by itself, without a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from actors.load.workload import Workload
from results.study_surface import traces_path
from search_spaces.config import EngineConfig, Setting, Taps
from search_spaces.errors import InputError
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.continuation import check_models
from sweeps.groups import open_groups, servers_of, stopping
from sweeps.home import StudyPlace
from sweeps.interrupts import stop_signals
from sweeps.lease import hold_folder
from sweeps.planning import SweepPlan, make_plan
from sweeps.spec_schema import SweepSpec
from sweeps.trace_choice import TraceChoice, trace_configs
from sweeps.trace_plans import PlannedTrace, plan_traces
from sweeps.tracing import TraceRun, known_texts, nothing_to_trace, run_traces
from sweeps.workloads import make_workload

TRACE_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class StudyTraces:
    """What would be traced of a study, and on what."""

    sweep: SweepPlan
    workload: Workload
    plans: tuple[PlannedTrace, ...]


def plan_study_traces(
    spec: SweepSpec, place: StudyPlace, choice: TraceChoice, layouts: Sequence[str] = ()
) -> StudyTraces:
    """Reads files, starts nothing. `layouts` are labels, in place of the choice's taps. InputError for what cannot be
    traced, and for models that are not the study's any more."""
    if spec.engine.kind != "sglang":
        raise InputError("trace: engine.kind: endpoint: only a server that specsweep starts can be traced")
    if spec.workload.temperature != 0:
        raise InputError(f"workload.temperature: a trace needs 0, not {spec.workload.temperature:g}")
    check_models(place, spec)
    sweep = make_plan(spec)
    taps = tuple(dict.fromkeys(_taps(label, sweep.context) for label in layouts))
    chosen = TraceChoice(**{**vars(choice), "layouts": taps or choice.layouts})
    configs = trace_configs([group.effective for group in sweep.servers.groups], sweep.context, chosen)
    workload = make_workload(spec)
    plans = plan_traces(traces_path(place.records), configs, workload, choice.prompts)
    return StudyTraces(sweep=sweep, workload=workload, plans=plans)


def trace_study(spec: SweepSpec, place: StudyPlace, found: StudyTraces, say: Callable[[str], None]) -> TraceRun:
    """Trace what is left, under the study's lock, in groups of its own where anything is left.

    InputError and EnvironmentProblem as for a sweep.
    """
    folder = place.records
    left = [plan for plan in found.plans if plan.left]
    if not left:
        return nothing_to_trace(found.plans)
    workload, context = found.workload, found.sweep.context
    tp_size = left[0].config.tp_size
    with hold_folder(folder.lock_path):
        folder.open_for_write()
        # a study's own servers have room for its whole space; these must have it for what is traced beyond
        servers: list[EngineConfig] = [*servers_of(found.sweep), *(plan.config for plan in left)]
        with open_groups(spec, context, place, servers) as pool, stop_signals() as stop, stopping(pool, stop):
            return run_traces(
                found.plans,
                pool=pool,
                traces=traces_path(folder),
                workload=workload,
                target=context.target,
                expected=known_texts(folder.records(), folder.rows, workload.workload_id, tp_size),
                stop=stop,
                retries=spec.budget.retries,
                say=say,
            )


def trace_json(place: StudyPlace, run: TraceRun) -> dict[str, Any]:
    """`specsweep trace --json`."""
    return {
        "schema": TRACE_SCHEMA,
        "study": place.name,
        "traces": [trace.to_json() for trace in run.traces],
        "weight_loads": run.weight_loads,
        "elapsed_s": round(run.elapsed_s, 3),
        "stopped": run.stopped,
    }


def plan_json(place: StudyPlace, found: StudyTraces) -> dict[str, Any]:
    """`specsweep trace --dry-run --json`."""
    return {"schema": TRACE_SCHEMA, "study": place.name, "traces": [plan.to_json() for plan in found.plans]}


def _taps(label: str, context: RuleContext) -> Taps:
    smallest = Setting(layout=label, num_steps=1, eagle_topk=1, num_draft_tokens=2, tp_size=1)
    ruling = resolve_setting(smallest, context)
    if isinstance(ruling, Illegal):
        raise InputError(f"--layout: {label}: {ruling.message} ({ruling.rule})")
    assert ruling.effective.layout is not None
    return ruling.effective.layout
