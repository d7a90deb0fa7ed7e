"""The MLflow runs of one study: made, completed, kept up to date and found again. What MLflow raises is passed on.

Explicit run ids are used all the way, so `MLFLOW_RUN_ID` and active runs of the surrounding process have no say.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from results.measured_settings import MeasuredSetting
from results.mlflow_connection import metric_entities, param_entities, tag_entities
from results.mlflow_fields import run_fields, run_name, run_params, speedups_of, start_tags
from results.records import TrialRecord
from results.request_table import CellKey
from results.store import LAUNCH_FILE, LOG_FILE, RECORD_FILE, SERVER_INFO_FILE, StudyFolder
from search_spaces.config import EngineConfig, Setting

DIGEST_TAG = "sweep.record_sha256"
STUDY_ID_TAG = "sweep.study_id"
ARTIFACTS = (LOG_FILE, LAUNCH_FILE, SERVER_INFO_FILE, RECORD_FILE)


class StudyRuns:
    """Runs of one study in one experiment, flat, as MLflow's own objects.

    On a server that several people use, their studies of one name share an experiment. A run belongs to this study when
    it carries the id in its `study.json`; a study from before there were ids has none, and the runs that carry none.
    """

    def __init__(self, client: Any, experiment_id: str, study: str, folder: StudyFolder) -> None:
        self.client = client
        self.experiment_id = experiment_id
        self._study = study
        self._study_id: str | None = (folder.study() or {}).get("id")
        self._folder = folder

    def all(self) -> list[Any]:
        """All runs of this study, deleted ones excepted; not those of another study of the same name."""
        found: list[Any] = []
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id],
                filter_string=f"tags.`sweep.study` = '{self._study}'",
                max_results=1000,
                page_token=token,
            )
            found += [run for run in page if run.data.tags.get(STUDY_ID_TAG) == self._study_id]
            token = page.token
            if not token:
                return found

    def begin(
        self,
        trial_id: str,
        *,
        effective: EngineConfig,
        role: str,
        retry_of: str | None,
        started_at_unix_s: float | None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """The id of a new run, RUNNING and without params."""
        own = start_tags(self._study, trial_id, role, retry_of)
        if self._study_id is not None:
            own |= {STUDY_ID_TAG: self._study_id}
        run = self.client.create_run(
            self.experiment_id,
            start_time=None if started_at_unix_s is None else int(started_at_unix_s * 1000),
            tags={**own, **(tags or {})},
            run_name=run_name(trial_id, effective),
        )
        return str(run.info.run_id)

    def digest(self, record: TrialRecord) -> str:
        """SHA-256 of the record's file: how a view knows that a run is up to date.

        Of what was written, which never changes, and not of what this version would write: to a version that adds a
        field to records the runs of an earlier one are as good as before.
        """
        return hashlib.sha256(self._folder.trial_file(record.trial_id, RECORD_FILE).read_bytes()).hexdigest()

    def log_params(self, run_id: str, setting: Setting | None, effective: EngineConfig) -> None:
        self.client.log_batch(run_id, params=param_entities(run_params(setting, effective)))

    def create(self, record: TrialRecord, speedups: Mapping[CellKey, float]) -> None:
        """A new run, complete."""
        run_id = self.begin(
            record.trial_id,
            effective=record.effective,
            role=record.role,
            retry_of=record.retry_of,
            started_at_unix_s=record.started_at_unix_s,
        )
        self.complete(run_id, record, speedups)

    def complete(self, run_id: str, record: TrialRecord, speedups: Mapping[CellKey, float]) -> None:
        """Artifacts, values and status; the digest comes last, so that a half-written run can be told from a whole."""
        for name in ARTIFACTS:
            path = self._folder.trial_file(record.trial_id, name)
            if path.exists():
                self.client.log_artifact(run_id, str(path))
        fields = run_fields(record, speedups)
        at_ms = int(record.finished_at_unix_s * 1000)
        self.client.log_batch(
            run_id,
            metrics=metric_entities(fields.metrics, at_ms),
            params=param_entities(self._params_for(run_id, fields.params)),
            tags=tag_entities(fields.tags),
        )
        self.client.set_terminated(run_id, status=fields.status, end_time=at_ms)
        self.client.set_tag(run_id, DIGEST_TAG, self.digest(record))

    def _params_for(self, run_id: str, params: Mapping[str, str]) -> dict[str, str]:
        """Params to log now. One that was predicted at the start and read back otherwise cannot be changed any more.

        It goes under `seen.` then, beside the prediction.
        """
        logged = self.client.get_run(run_id).data.params
        renamed = {
            name if logged.get(name, value) == value else f"seen.{name}": value for name, value in params.items()
        }
        return {name: value for name, value in renamed.items() if name not in logged}

    def bring_up_to_date(self, records: Sequence[TrialRecord], baselines: Sequence[MeasuredSetting]) -> None:
        """`update` every complete run of these records."""
        known = {self.digest(record): record for record in records}
        for run in self.all():
            record = known.get(run.data.tags.get(DIGEST_TAG, ""))
            if record is not None:
                self.update(run, record, speedups_of(record, baselines))

    def update(self, run: Any, record: TrialRecord, speedups: Mapping[CellKey, float]) -> None:
        """Log what a complete run lacks: a baseline that came later changes a speedup, which no record holds, and a
        later version of this package may compute more from the same record."""
        found = run_fields(record, speedups).metrics
        metrics = {name: value for name, value in found.items() if run.data.metrics.get(name) != value}
        if metrics:
            # MLflow shows the value of the highest step, and of the latest time among equal ones
            ended, now = record.finished_at_unix_s, time.time()
            steps = dict.fromkeys(metrics, max(0, int(now - ended)))
            at_ms = int(max(ended, now) * 1000) + 1
            self.client.log_batch(run.info.run_id, metrics=metric_entities(metrics, at_ms, steps))

    def kill(self, run_id: str) -> None:
        """End a run that has no record."""
        self.client.set_tag(run_id, "status", "killed")
        self.client.set_terminated(run_id, status="KILLED")

    def delete(self, run_id: str) -> None:
        self.client.delete_run(run_id)


def killed_earlier(run: Any) -> bool:
    """A run that a dead driver left and a resume closed: history, not a duplicate."""
    return run.info.status == "KILLED" and DIGEST_TAG not in run.data.tags
