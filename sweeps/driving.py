"""Driving one sweep from the command line: what is kept, what is shown, and how it ends."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import typer

from results.report import Report
from results.report_json import report_json
from search_spaces.errors import InputError
from sweeps.commands.options import print_json, whoever_reads
from sweeps.compose import SweepResult, run_sweep
from sweeps.home import StudyPlace
from sweeps.objectives import objective_of
from sweeps.progress import open_progress, show_duration
from sweeps.report_view import keep_report, print_report, print_verdicts
from sweeps.spec_schema import SweepSpec
from sweeps.study_report import report_of
from sweeps.terminal import TerminalObserver

DONE, FAILED, INTERRUPTED = 0, 1, 130

_REASONS = {
    "exhausted": "everything in the space has been measured",
    "trials": "budget.trials is spent",
    "launches": "budget.launches is spent",
    "wall_time_s": "budget.wall_time_s is spent",
    "gain": "no setting that is left is expected to gain as much as search.stop_at_gain",
    "interrupted": "stopped",
}


def drive(spec: SweepSpec, place: StudyPlace, *, as_json: bool) -> int:
    """Runs or continues the study in `place` and shows it; returns the exit code.

    With `as_json` the news go to stderr and one JSON object to stdout. The report is kept whether
    or not it can be shown.
    """
    progress = open_progress(sys.stderr if as_json else sys.stdout)
    opening = f"study {place.name} {'continues' if place.exists else 'begins'} in {place.folder}"
    try:
        result = run_sweep(spec, place, TerminalObserver(progress, objective_of(spec), opening))
    finally:
        progress.close()
    report = report_of(place)
    path = keep_report(report, place.records)
    with whoever_reads():
        _show(result, report, path, spec, place, as_json=as_json)
    return _exit_code(result)


def check_port(spec: SweepSpec) -> None:
    """InputError when the fixed port of the spec is taken on this machine."""
    port = spec.engine.port
    if port is None:
        return
    with socket.socket(socket.AF_INET6 if ":" in spec.engine.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((spec.engine.host, port))
        except OSError as error:
            raise InputError(
                f"engine.port: {port} cannot be used on {spec.engine.host}: {error.strerror}; "
                "leave the key out and a free port is chosen"
            ) from error


def _show(
    result: SweepResult, report: Report, path: Path | None, spec: SweepSpec, place: StudyPlace, *, as_json: bool
) -> None:
    if as_json:
        print_json(report_json(report) | {"reason": result.reason, "folder": str(place.folder)})
        return
    recovered = result.recovered
    if recovered.told or recovered.again or recovered.given_up:
        typer.echo(str(recovered))
    typer.echo(f"\n{_REASONS[result.reason]}, after {show_duration(result.standing.elapsed_s)}\n")
    print_report(report, sys.stdout)
    if path is not None:
        typer.echo(f"\nReport: {path}")
    if spec.tracking.enabled:
        uri = place.tracking_uri(spec)
        typer.echo(f"MLflow: {uri if uri.startswith('http') else f'mlflow ui --backend-store-uri {uri}'}")
    print_verdicts(report, sys.stdout)
    if result.interrupted:
        typer.echo(f"Stopped; nothing is lost: specsweep resume {place.name}")


def _exit_code(result: SweepResult) -> int:
    if result.interrupted:
        return INTERRUPTED
    return DONE if result.best is not None else FAILED
