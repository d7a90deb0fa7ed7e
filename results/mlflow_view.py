"""The MLflow view of a study: written by the driver alone, never in a sweep's way, rebuilt from records at will."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.mlflow_connection import connect, one_line
from results.mlflow_fields import speedups_of, throughput_baselines
from results.mlflow_runs import DIGEST_TAG, StudyRuns, killed_earlier
from results.records import TrialRecord
from results.store import StudyFolder
from search_spaces.config import EngineConfig, Setting
from search_spaces.errors import EnvironmentProblem

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    """What a rebuild did: runs written anew, runs left as they were, and duplicates or outdated runs removed."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: int


class MlflowView:
    """Writes one study's runs. Nothing here may stop a sweep: after opening, only `sync` raises.

    When a write fails it is logged, `needs_sync` becomes True and the study's marker file is made; `sync` removes it,
    unless this is a `copy` beside the store that the study writes to.
    Not thread-safe; one driver writes.
    """

    def __init__(self, runs: StudyRuns, folder: StudyFolder, *, copy: bool = False) -> None:
        self._runs = runs
        self._folder = folder
        self._copy = copy
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
        return cls(StudyRuns(client, experiment_id, study, folder), folder, copy=copy)

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
            killed = self._killed_run_ids.get(earlier) if earlier is not None else None
            run_id = self._runs.begin(
                trial_id,
                effective=effective,
                role=role,
                retry_of=earlier,
                started_at_unix_s=started_at_unix_s,
                tags={} if killed is None else {"retry_of_run": killed},
            )
            self._run_ids[trial_id] = run_id
            self._runs.log_params(run_id, setting, effective)

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
                self._runs.create(record, speedups)
            else:
                self._runs.complete(run_id, record, speedups)
            if record.effective.is_baseline:
                self._runs.bring_up_to_date(known[:-1], baselines)

        self._attempt(f"end of trial {record.trial_id}", finish)

    def kill(self, trial_id: str) -> None:
        """A trial was given up without a record (an interruption): end its run as KILLED. Nothing without a run."""
        run_id = self._run_ids.pop(trial_id, None)
        if run_id is not None:
            self._attempt(f"interruption of trial {trial_id}", lambda: self._kill(trial_id, run_id))

    def _kill(self, trial_id: str, run_id: str) -> None:
        self._runs.kill(run_id)
        self._killed_run_ids[trial_id] = run_id

    def close_dead_runs(self) -> tuple[str, ...]:
        """At resume: end (KILLED) every run of this study that a dead driver left RUNNING; returns their trial ids.

        Only the holder of the study's lock may call it. A trial whose record was written before the driver died gets
        its run back by `sync`, before or after this.
        """
        closed: list[str] = []

        def close() -> None:
            for run in self._runs.all():
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
        for run in self._runs.all():
            by_trial[run.data.tags.get("trial_id", "")].append(run)
        baselines = throughput_baselines(records)
        written, unchanged, removed = [], [], 0
        for record in records:
            runs = by_trial.get(record.trial_id, [])
            digest, speedups = self._runs.digest(record), speedups_of(record, baselines)
            current = next((run for run in runs if run.data.tags.get(DIGEST_TAG) == digest), None)
            # without a complete run the last one was the record's own, also where its driver died before the end
            own = current or max(runs, key=lambda run: run.info.start_time, default=None)
            outdated = [run for run in runs if run is not current and (run is own or not killed_earlier(run))]
            for run in outdated:
                self._runs.delete(run.info.run_id)
            removed += len(outdated)
            if current is None:
                self._runs.create(record, speedups)
                written.append(record.trial_id)
            else:
                self._runs.update(current, record, speedups)
                unchanged.append(record.trial_id)
        return SyncReport(written=tuple(written), unchanged=tuple(unchanged), removed=removed)

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
