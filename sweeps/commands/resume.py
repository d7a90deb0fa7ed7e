"""`specsweep resume`."""

from __future__ import annotations

import typer

from sweeps.commands.options import AsJson, Overrides, Study


def resume(study: Study, *, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Continue a study exactly where its records end.

    Trials that are recorded are kept to the byte; one that was cut off is run again. --set may change what does not
    change the meaning of a trial: budget, cluster, suspect, isolate, search (not its storage), tracking, the models'
    paths, and of the engine its interpreter, start method, host, port and timeouts. Another space or workload is
    another study: give that spec a `study` name of its own. A study whose budget is spent goes on with a larger one.

    Example: specsweep resume demo --set budget.trials=40
    """
    from sweeps.continuation import check_continues
    from sweeps.driving import check_port, drive
    from sweeps.home import find_study, home_folder

    place = find_study(study, home_folder())
    spec = place.read_runnable_spec(tuple(overrides or ()))
    check_continues(place, spec)
    check_port(spec)
    raise typer.Exit(drive(spec, place, as_json=as_json))
