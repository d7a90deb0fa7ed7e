"""The report of a study: one value, shown as JSON, Markdown or a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from results.acceptance import conditional_acceptance
from results.cell_row import estimate_json
from results.launch_script import command_text, user_command
from results.mlflow_fields import metric_name
from results.objective import Objective
from results.output_identity import OutputIdentity
from results.ranked_settings import RankedSetting
from results.ranking import Ranking, rank
from results.records import CONFIRMING, TrialRecord
from results.report_cells import cells_json, cells_of, objections, stopped, warnings
from results.report_sentences import caveats, next_step, summary_sentences
from results.search_notes import SearchNotes, read_notes
from results.store import StudyFolder
from results.switch_comparison import judge_switching
from results.switch_trust import SwitchTrust
from results.table import standing_legend, table_columns, table_rows
from search_spaces.config import layout_label

REPORT_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class LaunchCommand:
    """How to start the recommended server: words, the variables it needs, and the script in the study's folder."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    script: Path

    def __str__(self) -> str:
        return command_text(self.words, self.environment)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a study says. `verdicts` are sentences on the cause of the suspect's trouble, if that was analysed.

    `search` is None unless the search followed a surface, `switching` unless servers were switched.
    """

    study: str
    ranking: Ranking
    suspect: RankedSetting | None
    launch: LaunchCommand | None
    verdicts: tuple[str, ...]
    search: SearchNotes | None = None
    switching: SwitchTrust | None = None

    @property
    def findings(self) -> tuple[str, ...]:
        """What only shows across trials: of the search first, then of the measurements."""
        return (*(() if self.search is None else self.search.sentences), *self.ranking.findings)

    @property
    def summary(self) -> tuple[str, ...]:
        return (*summary_sentences(self.ranking, self.suspect), *self.verdicts)

    @property
    def caveats(self) -> tuple[str, ...]:
        return caveats(self.ranking)

    @property
    def next_step(self) -> str:
        return next_step(self.ranking, self.suspect, self.study, explained=bool(self.verdicts))


def build_report(
    folder: StudyFolder,
    objective: Objective,
    *,
    study: str,
    greedy: bool = True,
    verdicts: Sequence[str] = (),
    records: Sequence[TrialRecord] | None = None,
) -> Report:
    """Read a study's records (unless given) and rank them; request rows are read where comparisons need them.

    InputError when a record or a table of requests is corrupt.
    """
    known = folder.records() if records is None else records
    rows_of = lru_cache(maxsize=32)(folder.rows)
    ranking = rank(known, objective, rows_of=rows_of, greedy=greedy)
    switched = any(record.launch is not None and record.launch.switch_s is not None for record in known)
    return Report(
        study=study,
        ranking=ranking,
        suspect=ranking.suspect(),
        launch=None if ranking.choice is None else launch_command(ranking.choice, folder),
        verdicts=tuple(verdicts),
        search=read_notes(folder),
        switching=judge_switching(known, rows_of) if switched else None,
    )


def launch_command(row: RankedSetting, folder: StudyFolder) -> LaunchCommand | None:
    """From the launch that measured the setting, a fresh one rather than a switched one, a confirming one first."""
    launched = [(record, record.launch) for record in row.setting.measured if record.launch is not None]
    launched.sort(key=lambda pair: (pair[1].switch_s is not None, pair[0].role not in CONFIRMING))
    if not launched:
        return None
    record, launch = launched[0]
    place = folder.record_path(record.trial_id)
    return LaunchCommand(
        words=user_command(launch, row.setting.effective, lambda name: str(place / name)),
        environment=launch.environment,
        script=folder.trial_file(record.trial_id, "launch.sh"),
    )


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
        "settings": [setting_json(row) for row in ranking.settings],
        "baselines": [setting_json(row) for row in ranking.baselines],
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


def setting_json(row: RankedSetting) -> dict[str, Any]:
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


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """One part of the report, for Markdown and HTML alike. `code` is shown as it is; `rows` have `columns` first."""

    title: str
    paragraphs: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    code: str | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def report_sections(report: Report) -> tuple[ReportSection, ...]:
    """The report's parts in order, empty ones left out; it ends with the next step."""
    ranking = report.ranking
    stars = any(load.unfair for row in ranking.settings for load in row.loads)
    parts = [
        ReportSection(title="In short", paragraphs=report.summary),
        ReportSection(title="Limits of these numbers", bullets=report.caveats),
        ReportSection(title="Findings", bullets=report.findings),
        ReportSection(
            title="Settings",
            paragraphs=(
                "Effective settings, best first; equal ones are one row. ± is half of a 95 % interval over prompts"
                " (for speedups over prompts and launches)." + (" * marks an unfair comparison." if stars else ""),
                standing_legend(ranking),
            ),
            columns=table_columns(ranking),
            rows=tuple(table_rows(ranking)),
        ),
        ReportSection(title="Not ranked, and why", bullets=objections(ranking)),
        ReportSection(title="To know about ranked settings", bullets=warnings(ranking)),
        ReportSection(title="Ended before the last prompt", bullets=stopped(ranking)),
        _predictions(report),
        ReportSection(
            title="Next step",
            paragraphs=(report.next_step,),
            code=None if report.launch is None else str(report.launch),
        ),
    ]
    return tuple(part for part in parts if part.paragraphs or part.bullets or part.rows)


def _predictions(report: Report) -> ReportSection:
    """Every measurement that was predicted before it was made."""
    rows = () if report.search is None else report.search.comparisons
    return ReportSection(
        title="Predicted and measured",
        columns=("layout", "setting", "tp", "predicted", "95 % interval", "measured", "off by"),
        rows=tuple(
            (
                row["layout"],
                f"({row['num_steps']},{row['eagle_topk']},{row['num_draft_tokens']})",
                str(row["tp_size"]),
                f"{row['predicted']:.1f}",
                f"{row['low']:.1f} to {row['high']:.1f}" + ("" if row["held"] else " (missed)"),
                f"{row['measured']:.1f}",
                f"{row['relative_error']:+.1%}",
            )
            for row in rows
        ),
    )
