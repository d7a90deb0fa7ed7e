"""`specsweep run`."""

from __future__ import annotations

from typing import Annotated

import typer

from search_spaces.errors import InputError
from sweeps.commands.options import AsJson, Overrides, SpecFile, print_json


def run(
    spec_file: SpecFile,
    *,
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything that can be checked without a launch, then stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a sweep: launch servers, measure them, find the best setting.

    The study is kept in $SPECSWEEP_HOME (default: specsweep in your data folder) and survives Ctrl-C, a crash and
    kill -9; running the same spec again continues it. Ctrl-C once stops cleanly (exit code 130).

    Example: specsweep run sweeps/specs/demo.yaml --set budget.trials=10
    """
    from sweeps.claiming import claim_study
    from sweeps.continuation import continued
    from sweeps.driving import check_port, drive
    from sweeps.endpoint_study import adopted
    from sweeps.home import home_folder
    from sweeps.pace import pace_of
    from sweeps.plan_budget import plan_json
    from sweeps.plan_view import show_plan
    from sweeps.planning import make_plan
    from sweeps.spec import load_spec
    from sweeps.study_extras import extras_of

    spec = adopted(load_spec(spec_file, overrides or ()))
    place = claim_study(spec, home_folder())
    spec = continued(place, spec)
    try:
        plan = make_plan(spec)
        plan.servers.require_legal()
        check_port(spec)
    except InputError as error:
        raise InputError(f"{spec_file}: {error}") from error
    if not dry_run:
        raise typer.Exit(drive(spec, place, as_json=as_json))
    pace = pace_of(spec)
    extras = extras_of(spec, plan, pace)
    if as_json:
        content = plan_json(plan, pace, extras, spec.budget.limits)
        print_json(content | {"folder": str(place.folder), "exists": place.exists})
    else:
        typer.echo(show_plan(plan, pace, extras, spec.budget.limits))
        typer.echo(f"\nWould {'continue' if place.exists else 'begin'} the study in {place.folder}")
