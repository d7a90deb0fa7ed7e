"""`specsweep status`."""

from __future__ import annotations

import typer

from sweeps.commands.options import AsJson, Study, print_json


def status(study: Study, *, as_json: AsJson = False) -> None:
    """Show where a study stands: what is done and left, the best so far, and whether a driver runs it."""
    from sweeps.home import find_study, home_folder
    from sweeps.study_status import read_status

    read = read_status(find_study(study, home_folder()))
    if as_json:
        print_json(read.to_json())
    else:
        typer.echo(read.to_text())
