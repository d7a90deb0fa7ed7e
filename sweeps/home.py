"""Where studies live: `$SPECSWEEP_HOME/STUDY`, absolute, and never in a folder that somebody else cleans up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.errors import InputError
from search_spaces.typed_paths import expanded, is_there
from sweeps.nearest import nearest
from sweeps.spec import load_spec, parse_spec
from sweeps.spec_schema import SweepSpec

if TYPE_CHECKING:
    from results.store import StudyFolder

SPEC_FILE = "spec.json"


@dataclass(frozen=True, kw_only=True)
class StudyPlace:
    """One study's folder and the files in it that belong to no other module."""

    home: Path
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def spec_file(self) -> Path:
        return self.folder / SPEC_FILE

    @property
    def records(self) -> StudyFolder:
        """The records of the study, and every other path in its folder."""
        # the table of requests is a Parquet file, whose library takes a second to import
        from results.store import StudyFolder

        return StudyFolder(self.folder)

    @property
    def exists(self) -> bool:
        return is_there(self.spec_file) and self.spec_file.is_file()

    def read_spec(self, overrides: tuple[str, ...] = ()) -> SweepSpec:
        """The spec the study runs with, `overrides` applied. Its models need not be there any more.

        InputError when the file is unreadable or an override is wrong.
        """
        return parse_spec(self.spec_file, overrides)

    def read_runnable_spec(self, overrides: tuple[str, ...] = ()) -> SweepSpec:
        """`read_spec`, and InputError when one of the models is missing on this machine."""
        return load_spec(self.spec_file, overrides)

    def storage_url(self, spec: SweepSpec) -> str:
        """Optuna's storage: the spec's, else SQLite in this folder."""
        return spec.search.storage or f"sqlite:///{self.folder / 'study.db'}"

    def tracking_uri(self, spec: SweepSpec) -> str:
        """MLflow's store: the spec's, else SQLite beside all studies, so that they can be compared."""
        return spec.tracking.uri or f"sqlite:///{self.home / 'mlflow.db'}"

    @property
    def artifact_root(self) -> Path:
        """Where MLflow keeps artifacts when its store is a database."""
        return self.home / "mlflow-artifacts"


def home_folder(environment: Mapping[str, str] | None = None) -> Path:
    """`$SPECSWEEP_HOME`, else `specsweep` in the user's data folder (XDG). Not created.

    InputError when the variable is not an absolute path, or names a folder that Ray collects.
    """
    env = os.environ if environment is None else environment
    text = env.get("SPECSWEEP_HOME")
    home = expanded(text or Path(env.get("XDG_DATA_HOME") or "~/.local/share") / "specsweep")
    if not home.is_absolute():
        raise InputError(f"SPECSWEEP_HOME: {text!r} is not an absolute path")
    if any(part.startswith("_ray_pkg_") for part in home.parts):
        raise InputError(f"SPECSWEEP_HOME: {home} is a job's working directory, which Ray may delete; choose another")
    return home


def study_names(home: Path) -> list[str]:
    """The names of all studies in `home`, sorted; empty when there is no such folder."""
    try:
        return sorted(folder.name for folder in home.iterdir() if (folder / SPEC_FILE).is_file())
    except OSError:
        return []


def find_study(text: str, home: Path) -> StudyPlace:
    """An existing study by name or by folder; InputError names the studies there are."""
    named = home / text
    as_folder = expanded(text).absolute()
    candidates = [as_folder] if "/" in text or text in (".", "..") else [named, as_folder]
    for folder in candidates:
        place = StudyPlace(home=folder.resolve().parent, folder=folder.resolve())
        if place.exists:
            return place
    names = study_names(home)
    known = nearest(text, names) if names else "; there is none yet"
    raise InputError(f"no study {text!r} in {home}{known}")
