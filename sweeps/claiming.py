"""A study's folder as its driver takes it: claimed, given its spec, taken away again when the study cannot begin."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from results.durable_files import TEMPORARY_PREFIX
from search_spaces.checkpoint_identity import checkpoint_identity
from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.continuation import MODELS, check_continues
from sweeps.home import SPEC_FILE, StudyPlace
from sweeps.spec import dump_snapshot
from sweeps.spec_schema import SweepSpec

STUDY_SCHEMA = 1
_BEGUN = ("lock", "study.json")
_PROBE_PREFIX = ".specsweep-"
_PASSING = (TEMPORARY_PREFIX, _PROBE_PREFIX)
"""What a driver that was killed at once left of a study, or what one that begins it now has written; with names that
begin so while it writes."""


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
