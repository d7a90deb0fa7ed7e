from __future__ import annotations

import errno
import itertools
import json
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
from sweeps.driver_log import driver_log
from sweeps.home import StudyPlace, claim_study, find_study, home_folder, kept, save_spec, study_names
from sweeps.lease import hold_folder
from sweeps.spec import load_spec


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_home_is_the_variable_else_the_users_data_folder(tmp_path: Path) -> None:
    assert home_folder({"SPECSWEEP_HOME": "/data/sweeps"}) == Path("/data/sweeps")
    assert home_folder({"XDG_DATA_HOME": "/x"}) == Path("/x/specsweep")
    assert home_folder({}) == Path.home() / ".local/share/specsweep"
    assert home_folder({"SPECSWEEP_HOME": "~/s"}) == Path.home() / "s"


@pytest.mark.parametrize("text", ["studies", "./studies", "/ray/working_dir_files/_ray_pkg_0a1b/studies"])
def test_home_is_never_where_a_job_works(text: str) -> None:
    with pytest.raises(InputError, match=r"^SPECSWEEP_HOME: "):
        home_folder({"SPECSWEEP_HOME": text})


def test_claiming_writes_nothing(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path))
    before = listing(tmp_path)
    place = claim_study(spec, tmp_path / "home")
    assert place.folder == tmp_path / "home" / "case"
    assert not place.exists
    assert listing(tmp_path) == before


def test_a_saved_study_is_found_by_name_and_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    spec = load_spec(write_spec(tmp_path))
    save_spec(claim_study(spec, home), spec)
    assert study_names(home) == ["case"]
    assert listing(home) == ["case", "case/spec.json", "case/study.json"]
    by_name = find_study("case", home)
    monkeypatch.chdir(home)
    assert by_name == find_study(str(home / "case"), Path("/elsewhere")) == find_study("./case", Path("/elsewhere"))
    assert by_name.read_spec() == spec
    assert by_name.storage_url(spec) == f"sqlite:///{home}/case/study.db"
    assert by_name.tracking_uri(spec) == f"sqlite:///{home}/mlflow.db"


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


def test_an_unknown_study_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no study 'cese' in .*; there is none yet"):
        find_study("cese", tmp_path)
    spec = load_spec(write_spec(tmp_path))
    save_spec(StudyPlace(home=tmp_path, folder=tmp_path / "case"), spec)
    with pytest.raises(InputError, match=r"no study 'cese' in .*; did you mean case\?"):
        find_study("cese", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("space.num_steps=[1,5]", r"another space\.num_steps: \[1, 3\] there, \[1, 5\] here"),
        ("space.flags={a: [1]}", r"another space\.flags\.a: null there, \[1\] here"),
        ("draft=models/target", r"another draft: '.*/draft' there, '.*/target' here"),
        ("workload.temperature=1", r"another workload\.temperature: 0\.0 there, 1\.0 here"),
        ("objective.direction=minimize", r"another objective\.direction: null there, 'minimize' here"),
        ("engine.env={A: b}", r"another engine\.env\.A: null there, 'b' here"),
        ("search.storage=sqlite:////x.db", r"another search\.storage"),
    ],
)
def test_another_study_under_the_same_name_is_refused(tmp_path: Path, change: str, message: str) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    spec = load_spec(path)
    save_spec(claim_study(spec, home), spec)
    before = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    with pytest.raises(InputError, match=message) as caught:
        claim_study(load_spec(path, [change]), home)
    assert "\n" not in str(caught.value)
    assert "give this spec another `study` name" in str(caught.value)
    assert {file: file.read_bytes() for file in home.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    "change",
    [
        "budget.trials=9",
        "search.sampler=random",
        "search={sampler: auto, seed: 3, stop_at_gain: 0.001}",
        "cluster.gpus=2",
        "tracking.enabled=false",
        "engine.ready_timeout_s=5",
        "suspect={num_steps: 1}",
        "workload.max_attempts=1",
    ],
)
def test_a_study_may_go_on_with_another_budget_or_place(tmp_path: Path, change: str) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    save_spec(claim_study(load_spec(path), home), load_spec(path))
    changed = load_spec(path, [change])
    save_spec(claim_study(changed, home), changed)
    assert find_study("case", home).read_spec() == changed


def test_models_may_move_but_not_change(tmp_path: Path) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    save_spec(claim_study(load_spec(path), home), load_spec(path))
    (tmp_path / "models").rename(tmp_path / "moved")
    moved = load_spec(path, ["target=moved/target", "draft=moved/draft"])
    assert claim_study(moved, home).exists
    config = tmp_path / "moved" / "draft" / "config.json"
    config.write_text(config.read_text().replace("500000", "10000"))
    with pytest.raises(InputError, match=r"another draft: '.*/models/draft' there, '.*/moved/draft' here"):
        claim_study(moved, home)
    with pytest.raises(InputError, match=r"target: .*give an absolute path"):
        find_study("case", home).read_runnable_spec()
    assert find_study("case", home).read_spec().target == str(tmp_path / "models" / "target")


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


def test_a_broken_snapshot_is_named(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path))
    place = StudyPlace(home=tmp_path, folder=tmp_path / "case")
    save_spec(place, spec)
    content = json.loads(place.spec_file.read_text())
    place.spec_file.write_text(json.dumps(content | {"target": 3}))
    with pytest.raises(InputError, match=r"spec\.json:1: target: 3 is not text"):
        place.read_spec()
