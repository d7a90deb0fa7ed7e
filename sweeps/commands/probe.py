"""`specsweep probe`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.commands.options import AsJson, Study, TrainedOn, print_json

FAILED, INTERRUPTED = 1, 130


def probe(
    study: Study,
    *,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            help="Taps such as 0,3,7, `default` or `shipped`; by default the suspect's, else `shipped`. "
            "May be repeated."
        ),
    ] = None,
    tp_size: Annotated[
        int | None,
        typer.Option("--tp", min=1, help="The served TP size; by default the suspect's, else the space's largest."),
    ] = None,
    trained_on: TrainedOn = None,
    as_json: AsJson = False,
) -> None:
    """Read what the draft's fc receives, slot by slot on every rank, and name the target's tap each slot holds.

    A server at tp 1, where nothing is split, gives the target's taps; a server at the served TP size is held against
    them. Slices, partial sums and ranks that differ are named.

    Example: specsweep probe demo --layout 0,3,7 --layout shipped --tp 2
    """
    from results.probed_feed import probe_json
    from sweeps.commands.paragraphs import paragraph
    from sweeps.driver_log import driver_log
    from sweeps.home import find_study, home_folder
    from sweeps.probing import probe_study

    place = find_study(study, home_folder())
    with driver_log(place.records):
        found = probe_study(place.read_spec(), place, layouts=layout or (), tp_size=tp_size, trained=trained_on)
    if found is None:
        raise typer.Exit(INTERRUPTED)
    feeds, trained = found
    if as_json:
        print_json(probe_json(place.name, feeds, trained))
    else:
        typer.echo("\n".join(line for feed in feeds for line in paragraph("", feed.sentence(trained))))
    if any(feed.report is None for feed in feeds):
        raise typer.Exit(FAILED)
