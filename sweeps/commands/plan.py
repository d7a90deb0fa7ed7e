"""`specsweep plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from search_spaces.errors import InputError
from sweeps.commands.options import AsJson, Overrides, SpecFile, print_json

SecondsPerLaunch = Annotated[
    float,
    typer.Option(min=1, help="For the estimated time: one server start with its measurements, in seconds."),
]
SecondsPerSwitch = Annotated[
    float,
    typer.Option(min=1, help="The same for a trial on a running server, which loads no weights."),
]


def plan(
    spec_file: SpecFile,
    overrides: Overrides = None,
    seconds_per_launch: SecondsPerLaunch = 180.0,
    seconds_per_switch: SecondsPerSwitch = 60.0,
    as_json: AsJson = False,
) -> None:
    """Show what a sweep would run, without starting anything.

    Lists what SGLang would refuse and why, what it would change, which settings are one and the same server,
    and how many servers would be started at most within the budget, those for traces and checks included. Not counted
    are retries, what the verdict on a suspect measures of its own, and that budget.wall_time_s may end it earlier.
    Exit code 2 when nothing in the space is legal.

    Example: specsweep plan sweeps/specs/demo.yaml --set 'space.tp_size=[1,2]'
    """
    from sweeps.pace import pace_of
    from sweeps.plan_budget import plan_json
    from sweeps.plan_view import show_plan
    from sweeps.planning import make_plan
    from sweeps.spec import load_spec
    from sweeps.study_extras import extras_of

    spec = load_spec(spec_file, overrides or ())
    try:
        made = make_plan(spec)
        pace = pace_of(spec, seconds_per_launch, seconds_per_switch)
        extras = extras_of(spec, made, pace)
        if as_json:
            print_json(plan_json(made, pace, extras, spec.budget.limits))
        else:
            typer.echo(show_plan(made, pace, extras, spec.budget.limits))
        made.servers.require_legal()
    except InputError as error:
        raise InputError(f"{spec_file}: {error}") from error
