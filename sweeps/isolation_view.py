"""An isolation on a terminal: the sentences first, then the verdicts with their numbers, the corners, the probes."""

from __future__ import annotations

from typing import Any

from results.corners import MeasuredCorner
from results.isolation import Isolation
from results.isolation_report import sentences
from results.isolation_rows import config_words
from sweeps.commands.explain import show_explanation
from sweeps.commands.paragraphs import paragraph
from sweeps.isolation_plan import IsolationPlan
from sweeps.text_table import format_table

PLAN_SCHEMA = 1
_COLUMNS = ("from the reference", "setting", "accept length", "trials")


def show_isolation(isolation: Isolation) -> str:
    case = isolation.case
    lines = [line for sentence in sentences(isolation) for line in paragraph("", sentence)]
    lines += ["", show_explanation(isolation.explanation), ""]
    rows = [
        (
            _named(corner),
            config_words(measured.config),
            None if measured.accept_length is None else f"{measured.accept_length:.3f}",
            ", ".join(record.trial_id for record in measured.records) or measured.problem,
        )
        for corner, measured in case.corners.items()
    ]
    lines.append(format_table(_COLUMNS, rows))
    ladder = (isolation.explanation.gap or {}).get("ladder")
    if ladder:
        rungs = [f"{rung['rung']} {rung['accept_length']:.2f}" for rung in ladder]
        worst = max(ladder, key=lambda rung: float(rung["lost"]))
        lines += ["", *paragraph("", f"{' -> '.join(rungs)}; most is lost at {worst['rung']} ({worst['lost']:+.2f})")]
    if case.trained is not None:
        lines += ["", *paragraph("", f"The draft was {case.trained}.")]
    for feed in case.feeds:
        lines += paragraph("", feed.sentence(case.trained))
    return "\n".join(lines)


def show_plan(plan: IsolationPlan) -> str:
    """What an isolation would do, for `--dry-run`."""
    rows = [
        (_named(item.corner), config_words(item.measured.config), item.state, _behind(item.measured))
        for item in plan.corners
    ]
    lines = [
        f"suspect    {config_words(plan.ends.suspect)}",
        f"reference  {config_words(plan.ends.reference)} ({plan.ends.chosen_as})",
        "",
        format_table(("from the reference", "setting", "state", "trials"), rows),
    ]
    lines += ["", *(f"would probe {config_words(config)}" for probe in plan.probes for config in probe.configs)]
    lines += [f"would trace {trace.words}, {len(trace.left)} prompts" for trace in plan.traces]
    if plan.not_traced:
        lines += paragraph("", f"nothing would be traced: {plan.not_traced}")
    return "\n".join(lines).rstrip()


def plan_json(study: str, plan: IsolationPlan) -> dict[str, Any]:
    return {
        "schema": PLAN_SCHEMA,
        "study": study,
        "suspect": config_words(plan.ends.suspect),
        "reference": config_words(plan.ends.reference),
        "reference_is": plan.ends.chosen_as,
        "corners": [
            {
                "from_reference": sorted(item.corner),
                "setting": config_words(item.measured.config),
                "id": item.measured.config.identity,
                "state": item.state,
                "trials": [record.trial_id for record in item.measured.records],
                "problem": item.measured.problem or None,
            }
            for item in plan.corners
        ],
        "probes": [config_words(config) for probe in plan.probes for config in probe.configs],
        "traces": [trace.to_json() for trace in plan.traces],
        "not_traced": plan.not_traced or None,
    }


def _named(corner: frozenset[Any]) -> str:
    return ", ".join(sorted(corner)) or "nothing (the suspect)"


def _behind(measured: MeasuredCorner) -> str:
    trials = ", ".join(record.trial_id for record in measured.records)
    return f"{trials} ({measured.stopped})" if measured.stopped else trials or measured.problem
