"""The MLflow view of a study, opened for one session."""

from __future__ import annotations

from results.store import StudyFolder
from sweeps.home import StudyPlace
from sweeps.observers import Observer
from sweeps.spec_schema import SweepSpec


def tracking_observers(spec: SweepSpec, place: StudyPlace, folder: StudyFolder) -> list[Observer]:
    """The MLflow view, brought up to the records; none when tracking is off."""
    if not spec.tracking.enabled:
        return []
    from results.mlflow_view import MlflowView
    from sweeps.mlflow_observer import MlflowObserver

    view = MlflowView.open_or_fail(
        place.tracking_uri(spec),
        folder,
        study=spec.study,
        experiment=spec.tracking.experiment,
        artifact_root=place.artifact_root,
    )
    records = folder.records()
    view.close_dead_runs()
    if records:
        view.sync(records)
    return [MlflowObserver(view, records)]
