"""A study's folder while it is claimed and begun: whose it is, and what is left of a study that cannot begin."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spec_files import write_spec

from results import store
from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.claiming import claim_study, kept, save_spec
from sweeps.driver_log import driver_log
from sweeps.home import StudyPlace
from sweeps.lease import hold_folder
from sweeps.spec import load_spec


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_claiming_writes_nothing(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path))
    before = listing(tmp_path)
    place = claim_study(spec, tmp_path / "home")
    assert place.folder == tmp_path / "home" / "case"
    assert not place.exists
    assert listing(tmp_path) == before


def test_a_study_has_an_id_from_its_first_day_and_keeps_it(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path))
    places = [claim_study(spec, tmp_path / home) for home in ("one", "two")]
    for place in places:
        save_spec(place, spec)
    first, second = (place.records.study()["id"] for place in places)
    assert first != second
    save_spec(places[0], spec)
    assert places[0].records.study()["id"] == first
    places[1].records.write_study({"study": "case"})  # as it was before there were ids
    save_spec(places[1], spec)
    assert "id" not in places[1].records.study()


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home" / "case").mkdir(parents=True)
    (tmp_path / "home" / "case" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="not empty and not a study"):
        claim_study(load_spec(write_spec(tmp_path)), tmp_path / "home")


def is_killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do `work` in a process that dies before it makes, moves or removes a name for the `step`th time. False when it
    ends before that."""
    child = os.fork()
    if child == 0:
        steps = itertools.count(1)

        def deadly(real: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                if next(steps) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **options)

            return call

        for name in ("mkdir", "open", "replace", "unlink", "rmdir"):
            setattr(os, name, deadly(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_driver_may_be_killed_anywhere_while_its_study_cannot_begin(tmp_path: Path) -> None:
    spec, home = load_spec(write_spec(tmp_path)), tmp_path / "home"
    place = StudyPlace(home=home, folder=home / "case")

    def cannot_begin() -> None:
        with hold_folder(place.records.lock_path), kept(place, spec), driver_log(place.records):
            place.records.open_for_write()
            (place.folder / "study.db").touch()
            raise InputError("search.storage: it is another study's")

    for step in itertools.count(1):
        if not is_killed_at(step, cannot_begin):
            break
        assert claim_study(spec, home) == place, step
        shutil.rmtree(home, ignore_errors=True)
    assert step > 15
    assert not home.exists()


def test_what_another_driver_writes_at_the_moment_is_not_something_else(tmp_path: Path) -> None:
    spec, home = load_spec(write_spec(tmp_path)), tmp_path / "home"
    (home / "case" / ".specsweep-a1b2").mkdir(parents=True)
    for name in ("lock", "study.json", ".tmp-spec.json-7-0a1b"):
        (home / "case" / name).touch()
    assert not claim_study(spec, home).exists


def test_a_full_disk_leaves_nothing_of_a_new_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, home = load_spec(write_spec(tmp_path)), tmp_path / "home"
    place, written = claim_study(spec, home), []

    def full(path: Path, content: bytes) -> None:
        written.append(path.name)
        if path == place.spec_file:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        path.write_bytes(content)

    monkeypatch.setattr(store, "replace_file", full)
    with (
        pytest.raises(EnvironmentProblem, match="No space left on device"),
        hold_folder(place.records.lock_path),
        kept(place, spec),
    ):
        pass
    assert written == ["study.json", "spec.json"]
    assert not home.exists()


@pytest.mark.parametrize("home", ["{tmp}/file/home", "/proc/none/home"])
def test_an_unwritable_folder_is_refused(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("in the way")
    spec = load_spec(write_spec(tmp_path))
    before = listing(tmp_path)
    with pytest.raises(InputError, match=r"cannot be written: .*; set SPECSWEEP_HOME"):
        claim_study(spec, Path(home.format(tmp=tmp_path)))
    assert listing(tmp_path) == before
