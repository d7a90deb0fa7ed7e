"""The report as plain JSON values, for scripts."""

from __future__ import annotations

from typing import Any

from results.acceptance import conditional_acceptance
from results.cell_row import estimate_json
from results.mlflow_fields import metric_name
from results.output_identity import OutputIdentity
from results.ranked_settings import RankedSetting
from results.report import Report
from results.report_cells import cells_json, cells_of
from search_spaces.config import layout_label

REPORT_SCHEMA = 1


def report_json(report: Report) -> dict[str, Any]:
    """The report as plain JSON values. `schema` rises when a key changes its meaning; new keys may appear any time."""
    ranking, launch = report.ranking, report.launch
    asked = ranking.objective
    concurrency, request_rate = ranking.load or (asked.concurrency, asked.request_rate)
    return {
        "schema": REPORT_SCHEMA,
        "study": report.study,
        "objective": {
            "metric": asked.metric,
            "concurrency": concurrency if request_rate is None else None,
            "request_rate": request_rate,
            "direction": asked.direction,
            "mlflow_metric": None if ranking.load is None else metric_name(asked.metric, ranking.load),
        },
        "summary": list(report.summary),
        "next_step": report.next_step,
        "best": _identity(ranking.best),
        "choice": _identity(ranking.choice),
        "suspect": _identity(report.suspect),
        "launch_command": None if launch is None else list(launch.words),
        "launch_environment": None if launch is None else dict(launch.environment),
        "launch_script": None if launch is None else str(launch.script),
        "settings": [_setting_json(row) for row in ranking.settings],
        "baselines": [_setting_json(row) for row in ranking.baselines],
        "noise_floor": {
            "relative": ranking.noise.relative,
            "repeats": ranking.noise.repeats,
            "selected": ranking.noise.selected,
        },
        "drift": None
        if ranking.drift is None
        else {"change": estimate_json(ranking.drift.change), "significant": ranking.drift.significant},
        "caveats": list(report.caveats),
        "findings": list(report.findings),
        "search": None if report.search is None else report.search.to_json(),
        "switching": None if report.switching is None else report.switching.to_json(),
    }


def _outputs_json(outputs: OutputIdentity | None) -> dict[str, Any] | None:
    if outputs is None:
        return None
    return {
        "compared": outputs.shared,
        "identical_share": outputs.identical_share,
        "first_divergence": outputs.first_divergence,
    }


def _identity(row: RankedSetting | None) -> str | None:
    return None if row is None else row.setting.effective.identity


def _setting_json(row: RankedSetting) -> dict[str, Any]:
    """One row of the table as plain JSON values."""
    effective, comparison = row.setting.effective, row.against_best
    triple = effective.triple
    positions = (row.cell.acceptance_by_position if row.cell is not None else None) or None
    return {
        "id": effective.identity,
        "layout": None if effective.layout is None else layout_label(effective.layout),
        "labels": list(row.setting.labels),
        "num_steps": triple.num_steps if triple else None,
        "eagle_topk": triple.eagle_topk if triple else None,
        "num_draft_tokens": triple.num_draft_tokens if triple else None,
        "tp_size": effective.tp_size,
        "flags": dict(effective.flags),
        "trials": list(row.setting.trial_ids),
        "roles": sorted(row.setting.roles),
        "launches": row.launches,
        "status": row.status,
        "standing": comparison.standing if comparison is not None else None,
        "behind_best": comparison.behind if comparison is not None else None,
        "confirmed": row.confirmed,
        "objective": estimate_json(row.value),
        "accept_length": estimate_json(row.accept_length),
        "ceiling": triple.ceiling if triple else None,
        "p1": row.p1,
        "acceptance_by_position": positions and list(positions),
        "conditional_acceptance": positions and list(conditional_acceptance(positions)),
        "loads": [
            {
                "load": load.label,
                "concurrency": load.load[0] if load.load[1] is None else None,
                "request_rate": load.load[1],
                "output_throughput": estimate_json(load.throughput),
                "speedup": estimate_json(load.speedup),
                "over_best_baseline": load.over_best_baseline,
                "unfair": list(load.unfair),
                "outputs": _outputs_json(load.outputs),
            }
            for load in row.loads
        ],
        "reasons": list(row.reasons),
        "warnings": list(row.warnings),
        "stopped": {cell.load_label: cell.stopped for cell in cells_of(row) if cell.stopped is not None},
        "cells": cells_json(row),
        "failures": [{"phase": f.phase, "kind": f.kind, "message": f.message} for f in row.setting.failures],
    }
