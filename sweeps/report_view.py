"""A report as the terminal shows it: sentences, table, limits, the command to run, the next step."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from results.report import Report
from results.report_cells import objections, stopped, warnings
from results.report_pages import write_report
from results.store import StudyFolder
from results.table import detail_for, ranking_table, standing_legend, table_columns, table_rows
from search_spaces.errors import EnvironmentProblem
from sweeps.text_table import format_table

PLAIN_WIDTH = 120
WRAP_WIDTH = 110
MOST_REASONS = 8


def print_report(report: Report, stream: TextIO) -> None:
    """In colour and fitted to the width on a terminal, plain text without control characters elsewhere."""
    head, tail = "\n".join(_head(report)), "\n".join(_tail(report))
    if not stream.isatty():
        stream.write("\n".join(part for part in (head, _plain_table(report), tail) if part) + "\n")
        return
    # rich is needed on a terminal only
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    console.print(head, markup=False, soft_wrap=True)
    if report.ranking.settings or report.ranking.baselines:
        console.print(ranking_table(report.ranking, width=console.width))
    console.print(tail, markup=False, soft_wrap=True)


def keep_report(report: Report, folder: StudyFolder, *, with_plots: bool = True) -> Path | None:
    """Write the report into the study's folder; returns where its text is. None, and a warning on standard error, when
    the folder cannot be written."""
    try:
        paths = write_report(report, folder, with_plots=with_plots)
    except EnvironmentProblem as problem:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"specsweep: the report was not kept: {problem}\n")
        return None
    return next(path for path in paths if path.suffix == ".md")


def print_verdicts(report: Report, stream: TextIO) -> None:
    """What makes the suspect slow, if that was analysed: the last thing that is said."""
    if report.verdicts:
        lines = [line for sentence in report.verdicts for line in textwrap.wrap(sentence, WRAP_WIDTH)]
        stream.write("\n" + "\n".join(["Verdict:", *lines]) + "\n")


def _head(report: Report) -> Iterator[str]:
    for sentence in report.summary[: len(report.summary) - len(report.verdicts)]:
        yield from textwrap.wrap(sentence, WRAP_WIDTH)
    yield ""


def _plain_table(report: Report) -> str:
    ranking = report.ranking
    rows = table_rows(ranking, detail_for(ranking, PLAIN_WIDTH))
    return format_table(table_columns(ranking, detail_for(ranking, PLAIN_WIDTH)), rows) + "\n" if rows else ""


def _first(lines: Sequence[str]) -> Sequence[str]:
    """The first of many lines, as the report has all."""
    more = len(lines) - MOST_REASONS
    return lines if more <= 0 else [*lines[:MOST_REASONS], f"and {more} more, in the report"]


def _tail(report: Report) -> Iterator[str]:
    ranking = report.ranking
    if ranking.settings or ranking.baselines:
        yield from textwrap.wrap(standing_legend(ranking), WRAP_WIDTH)
        yield ""
    for title, lines in (
        ("Not ranked, and why", _first(objections(ranking))),
        ("To know about ranked settings", _first(warnings(ranking))),
        ("Ended before the last prompt", _first(stopped(ranking))),
        ("Limits of these numbers", report.caveats),
        ("Findings", report.findings),
    ):
        if lines:
            yield f"{title}:"
            for line in lines:
                yield from textwrap.wrap(line, WRAP_WIDTH, initial_indent="  - ", subsequent_indent="    ")
            yield ""
    yield from textwrap.wrap(f"Next: {report.next_step}", WRAP_WIDTH)
    if report.launch is not None:
        # not wrapped: it is to be copied
        yield f"\n{report.launch}"
