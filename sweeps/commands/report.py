"""`specsweep report`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from sweeps.commands.options import AsJson, Study, print_json


def report(
    study: Study,
    *,
    output_format: Annotated[
        Literal["text", "md", "html"], typer.Option("--format", help="What to print on standard output.")
    ] = "text",
    plots: Annotated[bool, typer.Option(help="Draw the plots as well.")] = True,
    as_json: AsJson = False,
) -> None:
    """Show what a study found: the table, the best setting, its launch command, and the limits of the numbers.

    report.md, report.html and report.json are written anew into the study's folder, if it can be written. A study that
    is still running may be reported on.

    Example: specsweep report demo --format md > demo.md
    """
    from results.report_json import report_json
    from results.report_pages import report_html, report_markdown
    from sweeps.home import find_study, home_folder
    from sweeps.report_view import keep_report, print_report, print_verdicts
    from sweeps.study_report import report_of

    place = find_study(study, home_folder())
    found = report_of(place)
    path = keep_report(found, place.records, with_plots=plots)
    if as_json:
        print_json(report_json(found))
    elif output_format == "text":
        print_report(found, sys.stdout)
    else:
        typer.echo(report_markdown(found) if output_format == "md" else report_html(found), nl=False)
    if output_format == "text" and not as_json:
        if path is not None:
            typer.echo(f"\nReport: {path}")
        print_verdicts(found, sys.stdout)
