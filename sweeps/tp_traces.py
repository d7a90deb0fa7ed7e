"""Traces of a suspect's draft at its TP size and at a smaller one: whether parallelism changes what it proposes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from actors.load.workload import Workload
from actors.tracing import tracing_config
from results.store import StudyFolder
from results.study_surface import traces_path
from results.tp_agreement import TpAgreement, agreements
from results.traces import Trace, find_traces, parallel_flags, trace_flags
from search_spaces.config import EngineConfig
from search_spaces.errors import InputError
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.isolation_ends import setting_of_config
from sweeps.trace_plans import PlannedTrace, plan_traces

LOG = logging.getLogger(__name__)

TRACED_PROMPTS = 16
"""How many prompts are traced: some thousand positions are enough to tell whether the drafts agree."""


@dataclass(frozen=True, kw_only=True)
class TpTraces:
    """`plans` are what is left to trace; `problem` is why nothing is, empty where all is traced already."""

    plans: tuple[PlannedTrace, ...] = ()
    problem: str = ""


def plan_tp_traces(
    folder: StudyFolder, suspect: EngineConfig, context: RuleContext, workload: Workload, sizes: Iterable[int]
) -> TpTraces:
    """What is left to trace of the suspect's layout and topk, at its TP size first: its server may still run.

    Beside it the smallest TP size at which that is traced already, else the smallest of `sizes` (at which the study
    runs servers), else 1, without flags of parallelism; at the steps of what is there, so that the two can be compared.
    InputError for a damaged trace.
    """
    if suspect.layout is None or suspect.triple is None or suspect.tp_size == 1:
        return TpTraces(problem="the suspect runs at tp 1, where nothing is split")
    plain = trace_flags(suspect.flags)
    depths = _traced_depths(folder, suspect, workload)
    problems = []
    for size in dict.fromkeys([*sorted(depths), *sorted(sizes), 1]):
        if size >= suspect.tp_size:
            continue
        there, here = depths.get(size, set()), depths.get(suspect.tp_size, set())
        steps = max(there & here or there or here or {suspect.triple.num_steps})
        served = tracing_config(suspect, num_steps=steps, eagle_topk=suspect.triple.eagle_topk)
        configs = [served, replace(served, tp_size=size, flags=plain)]
        rulings = [resolve_setting(setting_of_config(config), context) for config in configs]
        illegal = [ruling for ruling in rulings if isinstance(ruling, Illegal)]
        if not illegal:
            plans = plan_traces(traces_path(folder), configs, workload, TRACED_PROMPTS)
            return TpTraces(plans=tuple(plan for plan in plans if plan.left))
        problems.append(f"beside tp {size}: {illegal[0].message} ({illegal[0].rule})")
    return TpTraces(problem=problems[0])


def _traced_depths(folder: StudyFolder, suspect: EngineConfig, workload: Workload) -> dict[int, set[int]]:
    """The steps, by TP size, of the suspect's traces that cover its layout and triple on this workload."""
    triple = suspect.triple
    assert triple is not None
    wanted = (suspect.layout, triple.eagle_topk, trace_flags(suspect.flags), workload.workload_id)
    depths: dict[int, set[int]] = {}
    for trace in _traces_of(folder, suspect):
        facts = trace.facts
        same = (facts.layout, facts.eagle_topk, facts.flags, facts.workload_id) == wanted
        if same and facts.num_steps >= triple.num_steps and trace.prompts:
            depths.setdefault(facts.tp_size, set()).add(facts.num_steps)
    return depths


def _traces_of(folder: StudyFolder, suspect: EngineConfig) -> list[Trace]:
    """Traces of servers that a suspect is compared by: at its TP size with its flags of parallelism, else without any.
    InputError for a damaged one."""
    mine = parallel_flags(suspect.flags)
    return [
        trace
        for trace in find_traces(traces_path(folder))
        if trace.facts.parallel == (mine if trace.facts.tp_size == suspect.tp_size else ())
    ]


def tp_agreements(folder: StudyFolder, suspect: EngineConfig) -> tuple[TpAgreement, ...]:
    """What traces at two TP sizes say, where a study has them; a damaged trace says nothing."""
    if suspect.layout is None or suspect.triple is None:
        return ()
    try:
        return agreements(_traces_of(folder, suspect), suspect.layout, suspect.triple, suspect.flags)
    except InputError as problem:
        LOG.warning("traces are left out: %s", problem)
        return ()
