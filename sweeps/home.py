"""Where studies live: `$SPECSWEEP_HOME/STUDY`, absolute, and never in a folder that somebody else cleans up."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.durable_files import TEMPORARY_PREFIX
from search_spaces.checkpoint_identity import checkpoint_identity
from search_spaces.errors import EnvironmentProblem, InputError
from search_spaces.typed_paths import expanded, is_there
from sweeps.nearest import nearest
from sweeps.spec import dump_snapshot, load_spec, parse_spec
from sweeps.spec_fields import show
from sweeps.spec_schema import SweepSpec
from sweeps.spec_yaml import KeyPath, show_path

if TYPE_CHECKING:
    from results.store import StudyFolder

SPEC_FILE = "spec.json"
STUDY_SCHEMA = 1
MODELS = ("target", "draft")
_BEGUN = ("lock", "study.json")
_PROBE_PREFIX = ".specsweep-"
_PASSING = (TEMPORARY_PREFIX, _PROBE_PREFIX)
"""What a driver that was killed at once left of a study, or what one that begins it now has written; with names that
begin so while it writes."""

FREE_TO_CHANGE: frozenset[KeyPath] = frozenset(
    {
        # by path; the checkpoints themselves are compared
        ("target",),
        ("draft",),
        ("study",),
        ("suspect",),
        ("isolate",),
        ("cluster",),
        ("budget",),
        ("tracking",),
        ("search", "sampler"),
        ("search", "seed"),
        ("search", "stop_at_gain"),
        ("space", "catalog"),
        ("engine", "python"),
        ("engine", "start_method"),
        ("engine", "host"),
        ("engine", "ready_timeout_s"),
        ("engine", "request_timeout_s"),
        ("engine", "stop_grace_s"),
        ("engine", "port"),
        ("workload", "max_attempts"),
    }
)
"""Keys that do not change what a trial means: a study may be continued with other values of them."""


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


def claim_study(spec: SweepSpec, home: Path) -> StudyPlace:
    """Where the study of `spec` is or will be; writes nothing that stays.

    InputError when the folder cannot be written, is something else's, or holds a study with this name whose
    results would not be comparable; the first differing key is named with both values.
    """
    place = StudyPlace(home=home, folder=home / spec.study)
    _check_writable(place.folder)
    is_something_else = any(name not in _BEGUN and not name.startswith(_PASSING) for name in _names(place.folder))
    if place.exists:  # looked for after what else is there, as another driver may begin it now
        check_continues(place, spec)
    elif is_something_else:
        raise InputError(
            f"{place.folder}: not empty and not a study ({SPEC_FILE} is missing); give another `study` name"
        )
    return place


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def check_continues(place: StudyPlace, spec: SweepSpec) -> None:
    """InputError, naming the first differing key with both values, when results of `spec` would not be comparable with
    those of the study in `place`. Models may have moved; they must be the same checkpoints."""
    there = place.read_spec()
    differences = [*_models_differ(place, there, spec), *_differ(there.model_dump(), spec.model_dump(), ())]
    if differences:
        path, before, now = differences[0]
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        raise InputError(
            f"study {place.name!r} exists in {place.home} with another {show_path(path)}: {show(before)} there, "
            f"{show(now)} here{more}; give this spec another `study` name"
        )


def check_models(place: StudyPlace, spec: SweepSpec) -> None:
    """InputError when a model has become another checkpoint than the one the study in `place` measures."""
    for path, folder, _ in _models_differ(place, spec, spec):
        raise InputError(
            f"study {place.name!r}: {show_path(path)}: {folder} is not the checkpoint any more that the study was made "
            "with; measure it under another `study` name"
        )


def _models_differ(place: StudyPlace, there: SweepSpec, here: SweepSpec) -> Iterator[tuple[KeyPath, Any, Any]]:
    known = place.records.study() or {}
    for key in MODELS:
        if known.get(key) not in (None, checkpoint_identity(getattr(here, key))):
            yield (key,), getattr(there, key), getattr(here, key)


def continued(place: StudyPlace, spec: SweepSpec) -> SweepSpec:
    """`spec` as the study in `place` goes on with it: where it leaves the number of baselines open, with the number
    that the study has, so that a study that was done is not taken up again for more of them."""
    there = place.read_spec().budget.baselines if place.exists else "auto"
    if spec.budget.baselines != "auto" or there == "auto":
        return spec
    return spec.model_copy(update={"budget": spec.budget.model_copy(update={"baselines": there})})


@contextlib.contextmanager
def kept(place: StudyPlace, spec: SweepSpec) -> Iterator[Callable[[], None]]:
    """The study's spec while a driver holds its folder; yields what puts `spec` there, once nothing can refuse it.

    A study that is new has it from the start, and is taken away again when an InputError or EnvironmentProblem ends the
    context before anything was recorded. One that exists keeps its own until then. InputError when it exists by now and
    results of `spec` would not be comparable.
    """
    is_new = not place.exists
    if not is_new:
        check_continues(place, spec)
    try:
        if is_new:
            save_spec(place, spec)
        yield lambda: save_spec(place, spec)
    except (InputError, EnvironmentProblem):
        if is_new and not place.records.trial_ids():
            _discard(place)
        raise


def _discard(place: StudyPlace) -> None:
    """Killed in the middle of it, the next driver finds a study, or one that was just begun."""
    last = (SPEC_FILE, *reversed(_BEGUN))
    with contextlib.suppress(OSError):
        for path in place.folder.iterdir():
            if path.name not in last:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in last:
            (place.folder / name).unlink(missing_ok=True)
        place.folder.rmdir()
        place.home.rmdir()


def save_spec(place: StudyPlace, spec: SweepSpec) -> None:
    """Creates the study's folder if need be and puts the complete spec there, and what its models are; each file whole
    or not at all. EnvironmentProblem when the disk refuses."""
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{place.folder}: cannot be written: {error.strerror}") from error
    content = {"schema": STUDY_SCHEMA, "study": spec.study}
    content |= {key: checkpoint_identity(getattr(spec, key)) for key in MODELS}
    # what tells it from another study of its name; one from before there were ids goes on without
    study_id = (place.records.study() or {}).get("id") if place.exists else uuid.uuid4().hex
    if study_id is not None:
        content["id"] = study_id
    place.records.write_study(content)
    place.records.write_file(place.spec_file, dump_snapshot(spec))


def _check_writable(folder: Path) -> None:
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        # permission bits say nothing about root, read-only mounts or /proc: try it
        Path(tempfile.mkdtemp(prefix=_PROBE_PREFIX, dir=existing)).rmdir()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror} ({existing}); set SPECSWEEP_HOME") from error


def _differ(there: Any, here: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any, Any]]:
    if path in FREE_TO_CHANGE or there == here:
        return
    if isinstance(there, dict) and isinstance(here, dict):
        for key in list(dict.fromkeys([*there, *here])):
            yield from _differ(there.get(key), here.get(key), (*path, key))
    else:
        yield path, there, here
