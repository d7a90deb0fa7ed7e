"""The parts of a report in order, for people: what Markdown and HTML both show."""

from __future__ import annotations

from dataclasses import dataclass

from results.report import Report
from results.report_cells import objections, stopped, warnings
from results.table import standing_legend, table_columns, table_rows


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """One part of the report, for Markdown and HTML alike. `code` is shown as it is; `rows` have `columns` first.

    All plots belong to the one part that is `plotted`, and come after its rows.
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    code: str | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    plotted: bool = False


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
            plotted=True,
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
