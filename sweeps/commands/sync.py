"""`specsweep sync`."""

from __future__ import annotations

import typer

from sweeps.commands.options import AsJson, Overrides, Study, print_json

SCHEMA = 1


def sync(study: Study, *, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Bring the MLflow view in line with a study's records: one complete run each.

    May be repeated, and may fill an empty store: specsweep sync demo --set tracking.uri=http://127.0.0.1:5000
    """
    from results.mlflow_view import MlflowView
    from sweeps.home import find_study, home_folder

    place = find_study(study, home_folder())
    spec = place.read_spec(tuple(overrides or ()))
    records = place.records.records()
    uri, own = place.tracking_uri(spec), place.read_spec()
    view = MlflowView.open_or_fail(
        uri,
        place.records,
        study=spec.study,
        experiment=spec.tracking.experiment,
        artifact_root=place.artifact_root,
        copy=(uri, spec.tracking.experiment) != (place.tracking_uri(own), own.tracking.experiment),
    )
    done = view.sync(records)
    if as_json:
        content = {"study": place.name, "uri": uri, "written": list(done.written), "unchanged": list(done.unchanged)}
        print_json({"schema": SCHEMA, **content, "removed": done.removed})
    else:
        counts = f"{len(done.written)} written, {len(done.unchanged)} as they were, {done.removed} removed"
        typer.echo(f"{len(records)} records, runs: {counts}; {uri}")
