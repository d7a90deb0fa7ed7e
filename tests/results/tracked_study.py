"""A study's folder with its MLflow view, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from results.mlflow_view import MlflowView
from results.store import StudyFolder


@dataclass
class TrackedStudy:
    """A study's folder and its view; `reopened()` is what a new driver process would see."""

    uri: str
    folder: StudyFolder
    name: str
    artifact_root: Path
    view: MlflowView

    def reopened(self) -> MlflowView:
        return open_view(self.uri, self.folder, self.name, self.artifact_root)

    def runs(self) -> list:
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=self.uri)
        experiment = client.get_experiment_by_name(self.name)
        return list(client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"]))


def open_view(uri: str, folder: StudyFolder, name: str, artifact_root: Path) -> MlflowView:
    return MlflowView.open_or_fail(uri, folder, study=name, artifact_root=artifact_root)
