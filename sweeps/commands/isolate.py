"""`specsweep isolate`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from search_spaces.errors import InputError
from sweeps.commands.options import AsJson, Study, TrainedOn, print_json, whoever_reads

INTERRUPTED = 130


def isolate(
    study: Study,
    *,
    suspect: Annotated[
        str | None,
        typer.Option(
            metavar="TRIAL|YAML",
            help="What disappoints; by default the spec's suspect, else the draft as shipped.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="TRIAL|YAML",
            help="What is known to be good; by default the study's choice or, where that accepts no more than the "
            "suspect, the setting that accepts most. Taken at tp 1 where both share a larger TP size.",
        ),
    ] = None,
    trained_on: TrainedOn = None,
    offline: Annotated[
        str | None,
        typer.Option(metavar="P1,P2,...", help="The draft's offline accuracy by position (unconditional)."),
    ] = None,
    margin: Annotated[float, typer.Option(help="Relative difference below which nothing is a cause.")] = 0.02,
    probe: Annotated[bool, typer.Option(help="Also read what the draft is fed, on every rank.")] = True,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace/--no-trace",
            help="Also trace what the draft proposes at the suspect's TP size and a smaller one: how far they agree.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which of config, layout and parallelism makes the suspect slow, with what evidence.

    The suspect takes each of the three from the reference, alone and together; what the study has measured already, on
    every prompt, is not run again. The gap in accept length is split over the three, each with an interval and a
    verdict: yes, no or undecided. Interrupted, the same command goes on where it stopped.

    Example: specsweep isolate demo --reference t0004 --trained-on 0,3,7
    """
    from results.isolation_report import isolation_json
    from sweeps.driver_log import driver_log
    from sweeps.home import find_study, home_folder
    from sweeps.isolating import isolate_study
    from sweeps.isolation_view import plan_json, show_isolation, show_plan
    from sweeps.progress import open_progress
    from sweeps.study_isolation import IsolationRequest, StudyIsolation
    from sweeps.terminal import TerminalObserver

    if not 0 < margin < 1:
        raise InputError(f"--margin: {margin:g} is not between 0 and 1")
    place = find_study(study, home_folder())
    request = IsolationRequest(
        suspect=suspect,
        reference=reference,
        trained_on=trained_on,
        offline=_accuracies(offline),
        margin=margin,
        probe=probe,
        trace=trace,
    )
    isolation = StudyIsolation(place.read_spec(), place, request)
    if dry_run:
        plan = isolation.plan()
        if as_json:
            print_json(plan_json(place.name, plan))
        else:
            typer.echo(show_plan(plan))
        return
    progress = open_progress(sys.stderr if as_json else sys.stdout)
    try:
        with driver_log(place.records):
            observer = TerminalObserver(progress, isolation.objective, f"isolating in study {place.name}")
            found = isolate_study(isolation, observer)
    finally:
        progress.close()
    if found is None:
        with whoever_reads():
            typer.echo(f"Stopped; nothing is lost: specsweep isolate {place.name}", err=as_json)
        raise typer.Exit(INTERRUPTED)
    with whoever_reads():
        if as_json:
            print_json(isolation_json(found))
        else:
            typer.echo(show_isolation(found))


def _accuracies(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (-1.0,)
    if not all(0 <= value <= 1 for value in values):
        raise InputError(f"--offline: {text!r} is not a list of accuracies between 0 and 1 such as 0.75,0.6,0.45")
    return values
