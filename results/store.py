"""A study's folder: the one class that knows every path in it, and the durable records of its trials.

    spec.json         the spec as it was run          study.json     what the study is (replaced whole)
    study.db          the search                      lock           held by the one driver
    records/ID/       one folder per finished trial   logs/          the driver's and servers' working logs
    report.{md,html,json}                             mlflow.stale   there when the MLflow view misses something
    isolate.json  the last verdicts                   probes/        what drafts were fed, one file per configuration
    traces/       a folder for each trace

Records are created by one writer (the driver) and never changed; anybody may read at any time.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from results.durable_files import TEMPORARY_PREFIX, create_folder, remove_leftovers, replace_file
from results.launch_script import launch_file_name, launch_script
from results.observations import CellObservation, LaunchObservation, RequestRow
from results.observed_cells import OBSERVED_FILE, decode_cells
from results.record_json import decode_record, encode_record
from results.records import TrialRecord
from results.request_table import CellKey, RowsByCell, decode_rows, encode_rows
from search_spaces.config import layout_label
from search_spaces.errors import EnvironmentProblem, InputError

RECORD_FILE = "record.json"
ROWS_FILE = "requests.parquet"
LOG_FILE = "server.log"
SERVER_INFO_FILE = "server_info.json"
LAUNCH_FILE = "launch.sh"
PROBES_FOLDER = "probes"
TRACES_FOLDER = "traces"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class StudyFolder:
    """Paths and records of one study. Making one touches nothing; reading never writes."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the user's own links

    def __repr__(self) -> str:
        return f"StudyFolder({str(self.path)!r})"

    @property
    def spec_path(self) -> Path:
        return self.path / "spec.json"

    @property
    def study_path(self) -> Path:
        return self.path / "study.json"

    @property
    def optuna_path(self) -> Path:
        return self.path / "study.db"

    @property
    def records_path(self) -> Path:
        return self.path / "records"

    @property
    def logs_path(self) -> Path:
        return self.path / "logs"

    @property
    def lock_path(self) -> Path:
        return self.path / "lock"

    @property
    def stale_view_path(self) -> Path:
        return self.path / "mlflow.stale"

    def report_path(self, extension: str) -> Path:
        """Where the report of that kind (`md`, `html`, `json`) is written."""
        return self.path / f"report.{extension}"

    def record_path(self, trial_id: str) -> Path:
        """The folder of a trial's record. ValueError for an id that is no plain name."""
        if not _NAME.fullmatch(trial_id):
            raise ValueError(f"a trial id is letters, digits, '.', '_' and '-', not {trial_id!r}")
        return self.records_path / trial_id

    def trial_file(self, trial_id: str, name: str) -> Path:
        """A file of a record, such as `server.log`; it may not exist."""
        return self.record_path(trial_id) / name

    def open_for_write(self) -> tuple[str, ...]:
        """Create the folders and remove what an interrupted writer left; returns the names removed.

        Only the holder of the study's lock may call it. InputError when the folder cannot be written.
        """
        try:
            for path in (self.path, self.records_path, self.logs_path):
                path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.records_path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "not writable", str(self.records_path))
            traces = self.path / TRACES_FOLDER
            folders = [self.path, self.records_path, self.path / PROBES_FOLDER, traces, *sorted(traces.glob("*"))]
            return tuple(name for folder in folders for name in remove_leftovers(folder))
        except OSError as error:
            raise InputError(f"study folder {self.path}: cannot be written: {error.strerror or error}") from None

    def write_file(self, path: Path, content: bytes | str) -> None:
        """Replace one of the study's own files (spec, study, report), atomically. EnvironmentProblem when it fails."""
        try:
            replace_file(path, content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise EnvironmentProblem(f"{path}: cannot be written: {error.strerror or error}") from None

    def write_study(self, content: Mapping[str, Any]) -> None:
        """Replace `study.json`, atomically."""
        self.write_file(self.study_path, json.dumps(content, indent=2, sort_keys=True) + "\n")

    def study(self) -> dict[str, Any] | None:
        """The content of `study.json`, None when there is none. InputError when it is no JSON object."""
        try:
            content = json.loads(self.study_path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InputError(f"{self.study_path}: not JSON: {error}") from None
        if not isinstance(content, dict):
            raise InputError(f"{self.study_path}: not a JSON object")
        return content

    def write_trial(self, record: TrialRecord, rows_by_cell: RowsByCell, files: Mapping[str, bytes]) -> Path:
        """Store one finished trial, all or nothing and durably; returns its folder.

        `rows_by_cell` holds the request rows (see `request_table.rows_by_cell`), `files` further files such as
        `server.log`; the launch script and the server's resolved arguments are added from the record when `files` has
        none. FileExistsError when the trial is there already (records never change); EnvironmentProblem when the disk
        refuses, and then nothing of the trial remains.
        """
        path = self.record_path(record.trial_id)
        content = {RECORD_FILE: encode_record(record), ROWS_FILE: encode_rows(rows_by_cell)}
        for name, data in {**_launch_files(record), **files}.items():
            if not _NAME.fullmatch(name) or name in content:
                raise ValueError(f"not a name for a file of a record: {name!r}")
            content[name] = data
        modes = {name: 0o755 if name == LAUNCH_FILE else 0o644 for name in content}
        try:
            create_folder(path, {name: (data, modes[name]) for name, data in content.items()})
        except FileExistsError:
            raise
        except OSError as error:
            raise EnvironmentProblem(f"{path}: the record cannot be written: {error.strerror or error}") from None
        return path

    def trial_ids(self) -> tuple[str, ...]:
        """Ids of all finished trials, digits in them ordered as numbers."""
        try:
            names = [entry.name for entry in self.records_path.iterdir() if not entry.name.startswith(TEMPORARY_PREFIX)]
        except FileNotFoundError:
            return ()
        return tuple(sorted((name for name in names if _NAME.fullmatch(name)), key=_natural_order))

    def record(self, trial_id: str) -> TrialRecord:
        """One record. InputError, in one line naming the file, when it is missing, corrupt or of another schema."""
        path = self.trial_file(trial_id, RECORD_FILE)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: the record cannot be read: {error.strerror or error}") from None
        record = decode_record(content, name=str(path))
        if record.trial_id != trial_id:
            raise InputError(f"{path}: trial_id: {record.trial_id!r} does not match its folder")
        return record

    def records(self) -> tuple[TrialRecord, ...]:
        """All finished trials in the order of their ids. InputError naming the first bad one."""
        return tuple(self.record(trial_id) for trial_id in self.trial_ids())

    def rows(self, trial_id: str) -> dict[CellKey, tuple[RequestRow, ...]]:
        """The request rows of a trial by cell; empty when it measured none. InputError when unreadable."""
        return decode_rows(self.trial_file(trial_id, ROWS_FILE))

    def observations(self, trial_id: str) -> tuple[CellObservation, ...]:
        """Everything that a trial's cells observed, rows and all, from which its summaries can be computed again.

        Empty when it measured none, or was recorded before observations were kept. InputError when unreadable.
        """
        path = self.trial_file(trial_id, OBSERVED_FILE)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
        return decode_cells(content, self.rows(trial_id), name=str(path))


def _natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts)


def _launch_files(record: TrialRecord) -> dict[str, bytes]:
    launch = record.launch
    if launch is None:
        return {}
    info = {key: value for key, value in asdict(launch).items() if key not in ("command", "files")}
    return {
        **{launch_file_name(path): content.encode() for path, content in launch.files},
        LAUNCH_FILE: launch_script(launch, record.effective, comment=_comment(record, launch)).encode(),
        SERVER_INFO_FILE: (json.dumps(info, indent=2, sort_keys=True, default=str) + "\n").encode(),
    }


def _comment(record: TrialRecord, launch: LaunchObservation) -> str:
    config = record.effective
    what = "no speculation" if config.layout is None else f"layout {layout_label(config.layout)} at {config.triple}"
    return (
        f"Trial {record.trial_id} of study {record.study}: {what}, tp {config.tp_size}, SGLang {launch.engine_version}"
    )
