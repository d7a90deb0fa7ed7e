"""Traces of a suspect's draft at its TP size and at tp 1: whether parallelism changes what it proposes."""

from __future__ import annotations

import logging
from dataclasses import replace

from actors.load.workload import Workload
from actors.tracing import tracing_config
from results.store import StudyFolder
from results.study_surface import traces_path
from results.tp_agreement import TpAgreement, agreements
from results.traces import find_traces
from search_spaces.config import EngineConfig
from search_spaces.errors import InputError
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.isolation_ends import setting_of_config
from sweeps.trace_plans import PlannedTrace, plan_traces

LOG = logging.getLogger(__name__)

TRACED_PROMPTS = 16
"""How many prompts are traced: some thousand positions are enough to tell whether the drafts agree."""


def plan_tp_traces(
    folder: StudyFolder, suspect: EngineConfig, context: RuleContext, workload: Workload
) -> tuple[PlannedTrace, ...]:
    """What is left to trace of the suspect's layout and topk, the larger TP size first: its server may still run.

    At the steps of a trace that is there already and covers the suspect, so that the two can be compared. Empty at
    tp 1, and where SGLang would not run one of the two. InputError for a damaged trace.
    """
    if suspect.layout is None or suspect.triple is None or suspect.tp_size == 1:
        return ()
    steps = max(
        (
            trace.facts.num_steps
            for trace in find_traces(traces_path(folder))
            if (trace.facts.layout, trace.facts.eagle_topk) == (suspect.layout, suspect.triple.eagle_topk)
            and trace.facts.workload_id == workload.workload_id
        ),
        default=0,
    )
    steps = max(steps, suspect.triple.num_steps)
    traced = tracing_config(suspect, num_steps=steps, eagle_topk=suspect.triple.eagle_topk)
    configs = [replace(traced, tp_size=tp_size) for tp_size in (suspect.tp_size, 1)]
    if any(isinstance(resolve_setting(setting_of_config(config), context), Illegal) for config in configs):
        return ()
    plans = plan_traces(traces_path(folder), configs, workload, TRACED_PROMPTS)
    return tuple(plan for plan in plans if plan.left)


def tp_agreements(folder: StudyFolder, suspect: EngineConfig) -> tuple[TpAgreement, ...]:
    """What traces at two TP sizes say, where a study has them; a damaged trace says nothing."""
    if suspect.layout is None or suspect.triple is None:
        return ()
    try:
        return agreements(find_traces(traces_path(folder)), suspect.layout, suspect.triple)
    except InputError as problem:
        LOG.warning("traces are left out: %s", problem)
        return ()
