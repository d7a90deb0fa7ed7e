"""A study's folder with its MLflow view, and the runs and records that tests put there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from result_builders import config, record, row, summary

from results.mlflow_view import MlflowView
from results.store import StudyFolder
from search_spaces.config import Setting

RIGHT = config((0, 3, 7), (1, 1, 2))
ASKED = Setting(layout="0,3,7", num_steps=1, eagle_topk=1, num_draft_tokens=8, tp_size=1)
LOG = {"server.log": b"started\n"}


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


def done(tracked: TrackedStudy, trial_id: str = "t1", throughput: float = 180.0, **changes):
    made = record(
        trial_id, RIGHT, cells=[summary(throughput=throughput), summary(throughput=300.0, concurrency=8)], **changes
    )
    made = replace(made, study=tracked.name, setting=changes.get("setting", ASKED))
    tracked.folder.write_trial(made, {(1, None): (row(),)}, LOG)
    return made


def baseline(tracked: TrackedStudy, throughput: float = 100.0, trial_id: str = "b1", **changes):
    cells = [summary(throughput=throughput, accept_length=None)]
    made = record(trial_id, config(None, None), cells=cells, role="baseline", **changes)
    made = replace(made, study=tracked.name)
    tracked.folder.write_trial(made, {}, LOG)
    return made


def start(view: MlflowView, trial_id: str = "t1", **changes) -> None:
    view.start_run(trial_id, **{"setting": ASKED, "effective": RIGHT, "role": "search", **changes})
