"""The MLflow view of a study: flat runs in one experiment, written by the driver alone, rebuilt from records at will.

Explicit run ids are used all the way, so `MLFLOW_RUN_ID` and active runs of the surrounding process have no say.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.measured_settings import MeasuredSetting
from results.mlflow_connection import connect, metric_entities, one_line, param_entities, tag_entities
from results.mlflow_fields import (
    record_digest,
    run_fields,
    run_name,
    run_params,
    speedups_of,
    start_tags,
    throughput_baselines,
)
from results.records import TrialRecord
from results.request_table import CellKey
from results.store import LAUNCH_FILE, LOG_FILE, RECORD_FILE, SERVER_INFO_FILE, StudyFolder
from search_spaces.config import EngineConfig, Setting
from search_spaces.errors import EnvironmentProblem

logger = logging.getLogger(__name__)

DIGEST_TAG = "sweep.record_sha256"
STUDY_ID_TAG = "sweep.study_id"
ARTIFACTS = (LOG_FILE, LAUNCH_FILE, SERVER_INFO_FILE, RECORD_FILE)


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    """What a rebuild did: runs written anew, runs left as they were, and duplicates or outdated runs removed."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: int


class MlflowView:
    """Writes one study's runs. Nothing here may stop a sweep: after opening, only `sync` raises.

    On a server that several people use, their studies of one name share an experiment. A run belongs to this study when
    it carries the id in its `study.json`; a study from before there were ids has none, and the runs that carry none.

    When a write fails it is logged, `needs_sync` becomes True and the study's marker file is made; `sync` removes it,
    unless this is a `copy` beside the store that the study writes to.
    Not thread-safe; one driver writes.
    """

    def __init__(self, client: Any, experiment_id: str, study: str, folder: StudyFolder, *, copy: bool = False) -> None:
        self._copy = copy
        self._client = client
        self._experiment_id = experiment_id
        self._study = study
        self._study_id: str | None = (folder.study() or {}).get("id")
        self._folder = folder
        self._run_ids: dict[str, str] = {}
        self._killed_run_ids: dict[str, str] = {}
        self.needs_sync = folder.stale_view_path.exists()

    @classmethod
    def open_or_fail(
        cls,
        uri: str,
        folder: StudyFolder,
        *,
        study: str,
        experiment: str | None = None,
        artifact_root: Path,
        copy: bool = False,
    ) -> MlflowView:
        """Connect and find or create the experiment (default: the study's name); a deleted one is restored.

        `artifact_root` (absolute) is where a new experiment on a database keeps artifacts; a tracking server decides
        for itself. InputError for a URI that MLflow does not serve, EnvironmentProblem when it cannot be reached.
        """
        client, experiment_id = connect(uri, experiment or study, artifact_root)
        return cls(client, experiment_id, study, folder, copy=copy)

    def start_run(
        self,
        trial_id: str,
        *,
        setting: Setting | None,
        effective: EngineConfig,
        role: str,
        retry_of: str | None = None,
        started_at_unix_s: float | None = None,
    ) -> None:
        """A trial begins: its run is RUNNING from now on, with its params.

        When `close_dead_runs` ended an earlier run of this trial, or of the one it retries, the tags `retry_of` (trial)
        and `retry_of_run` link the two.
        """

        def start() -> None:
            earlier = trial_id if trial_id in self._killed_run_ids else retry_of
            tags = self._start_tags(trial_id, role, earlier)
            if earlier in self._killed_run_ids:
                tags["retry_of_run"] = self._killed_run_ids[earlier]
            run = self._client.create_run(
                self._experiment_id,
                start_time=None if started_at_unix_s is None else int(started_at_unix_s * 1000),
                tags=tags,
                run_name=run_name(trial_id, effective),
            )
            self._run_ids[trial_id] = run.info.run_id
            self._client.log_batch(run.info.run_id, params=param_entities(run_params(setting, effective)))

        self._attempt(f"start of trial {trial_id}", start)

    def finish(self, record: TrialRecord, records: Sequence[TrialRecord] = ()) -> None:
        """A trial's record is stored: complete its run and end it. `records` give the baselines for its speedup.

        A baseline changes the speedups of the runs before it, which are brought up to date.
        """

        def finish() -> None:
            known = [*(other for other in records if other.trial_id != record.trial_id), record]
            baselines = throughput_baselines(known)
            speedups = speedups_of(record, baselines)
            run_id = self._run_ids.pop(record.trial_id, None)
            if run_id is None:
                self._create(record, speedups)
            else:
                self._complete(run_id, record, speedups)
            if record.effective.is_baseline:
                self._bring_up_to_date(known[:-1], baselines)

        self._attempt(f"end of trial {record.trial_id}", finish)

    def kill(self, trial_id: str) -> None:
        """A trial was given up without a record (an interruption): end its run as KILLED. Nothing without a run."""
        run_id = self._run_ids.pop(trial_id, None)
        if run_id is not None:
            self._attempt(f"interruption of trial {trial_id}", lambda: self._kill(trial_id, run_id))

    def _kill(self, trial_id: str, run_id: str) -> None:
        self._client.set_tag(run_id, "status", "killed")
        self._client.set_terminated(run_id, status="KILLED")
        self._killed_run_ids[trial_id] = run_id

    def close_dead_runs(self) -> tuple[str, ...]:
        """At resume: end (KILLED) every run of this study that a dead driver left RUNNING; returns their trial ids.

        Only the holder of the study's lock may call it. A trial whose record was written before the driver died gets
        its run back by `sync`, before or after this.
        """
        closed: list[str] = []

        def close() -> None:
            for run in self._runs():
                if run.info.status == "RUNNING" and run.info.run_id not in self._run_ids.values():
                    trial_id = run.data.tags.get("trial_id", "")
                    self._kill(trial_id, run.info.run_id)
                    closed.append(trial_id)

        self._attempt("dead runs", close)
        return tuple(closed)

    def sync(self, records: Sequence[TrialRecord]) -> SyncReport:
        """Bring the view in line with the records: exactly one complete run each. Idempotent.

        Runs that are up to date are kept, outdated and duplicate ones are deleted and written anew; runs without a
        record (one that runs now, or one that was killed) are left alone. EnvironmentProblem when MLflow fails.
        """
        try:
            report = self._synchronise(records)
        except Exception as error:
            raise EnvironmentProblem(f"MLflow: {one_line(error)}") from None
        self.needs_sync = False
        if not self._copy:
            self._folder.stale_view_path.unlink(missing_ok=True)
        return report

    def _synchronise(self, records: Sequence[TrialRecord]) -> SyncReport:
        by_trial: dict[str, list[Any]] = defaultdict(list)
        for run in self._runs():
            by_trial[run.data.tags.get("trial_id", "")].append(run)
        baselines = throughput_baselines(records)
        written, unchanged, removed = [], [], 0
        for record in records:
            runs = by_trial.get(record.trial_id, [])
            digest, speedups = record_digest(record), speedups_of(record, baselines)
            current = next((run for run in runs if run.data.tags.get(DIGEST_TAG) == digest), None)
            kept = [run for run in runs if current is not None and _killed_earlier(run)]
            outdated = [run for run in runs if run is not current and run not in kept]
            for run in outdated:
                self._client.delete_run(run.info.run_id)
            removed += len(outdated)
            if current is None:
                self._create(record, speedups)
                written.append(record.trial_id)
            else:
                self._update(current, record, speedups)
                unchanged.append(record.trial_id)
        return SyncReport(written=tuple(written), unchanged=tuple(unchanged), removed=removed)

    def _create(self, record: TrialRecord, speedups: Mapping[CellKey, float]) -> None:
        run = self._client.create_run(
            self._experiment_id,
            start_time=int(record.started_at_unix_s * 1000),
            tags=self._start_tags(record.trial_id, record.role, record.retry_of),
            run_name=run_name(record.trial_id, record.effective),
        )
        self._complete(run.info.run_id, record, speedups)

    def _start_tags(self, trial_id: str, role: str, retry_of: str | None) -> dict[str, str]:
        tags = start_tags(self._study, trial_id, role, retry_of)
        return tags if self._study_id is None else {**tags, STUDY_ID_TAG: self._study_id}

    def _complete(self, run_id: str, record: TrialRecord, speedups: Mapping[CellKey, float]) -> None:
        """Artifacts, values and status; the digest comes last, so that a half-written run is written anew by `sync`."""
        for name in ARTIFACTS:
            path = self._folder.trial_file(record.trial_id, name)
            if path.exists():
                self._client.log_artifact(run_id, str(path))
        fields = run_fields(record, speedups)
        at_ms = int(record.finished_at_unix_s * 1000)
        self._client.log_batch(
            run_id,
            metrics=metric_entities(fields.metrics, at_ms),
            params=param_entities(self._params_for(run_id, fields.params)),
            tags=tag_entities(fields.tags),
        )
        self._client.set_terminated(run_id, status=fields.status, end_time=at_ms)
        self._client.set_tag(run_id, DIGEST_TAG, record_digest(record))

    def _params_for(self, run_id: str, params: Mapping[str, str]) -> dict[str, str]:
        """Params to log now. One that was predicted at the start and read back otherwise cannot be changed any more.

        It goes under `seen.` then, beside the prediction.
        """
        logged = self._client.get_run(run_id).data.params
        renamed = {
            name if logged.get(name, value) == value else f"seen.{name}": value for name, value in params.items()
        }
        return {name: value for name, value in renamed.items() if name not in logged}

    def _bring_up_to_date(self, records: Sequence[TrialRecord], baselines: Sequence[MeasuredSetting]) -> None:
        known = {record_digest(record): record for record in records}
        for run in self._runs():
            record = known.get(run.data.tags.get(DIGEST_TAG, ""))
            if record is not None:
                self._update(run, record, speedups_of(record, baselines))

    def _update(self, run: Any, record: TrialRecord, speedups: Mapping[CellKey, float]) -> None:
        """Log what a complete run lacks: a baseline that came later changes a speedup, which no record holds, and a
        later version of this package may compute more from the same record."""
        found = run_fields(record, speedups).metrics
        metrics = {name: value for name, value in found.items() if run.data.metrics.get(name) != value}
        if metrics:
            # MLflow shows the value of the highest step, and of the latest time among equal ones
            ended, now = record.finished_at_unix_s, time.time()
            steps = dict.fromkeys(metrics, max(0, int(now - ended)))
            at_ms = int(max(ended, now) * 1000) + 1
            self._client.log_batch(run.info.run_id, metrics=metric_entities(metrics, at_ms, steps))

    def _runs(self) -> list[Any]:
        """All runs of this study, deleted ones excepted; not those of another study of the same name."""
        found: list[Any] = []
        token: str | None = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id],
                filter_string=f"tags.`sweep.study` = '{self._study}'",
                max_results=1000,
                page_token=token,
            )
            found += [run for run in page if run.data.tags.get(STUDY_ID_TAG) == self._study_id]
            token = page.token
            if not token:
                return found

    def _attempt(self, what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:  # a view: whatever MLflow has, the sweep goes on
            logger.warning("MLflow view: %s was not written (%s); `specsweep sync` will", what, one_line(error))
            self.needs_sync = True
            try:
                self._folder.stale_view_path.touch()
            except OSError as marker_error:
                logger.warning("MLflow view: no marker could be left: %s", marker_error)


def _killed_earlier(run: Any) -> bool:
    """A run that a dead driver left and a resume closed: history, not a duplicate."""
    return run.info.status == "KILLED" and DIGEST_TAG not in run.data.tags
