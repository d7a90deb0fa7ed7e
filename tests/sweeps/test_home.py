"""Where studies live and how one is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spec_files import write_spec

from search_spaces.errors import InputError
from sweeps.claiming import claim_study, save_spec
from sweeps.home import StudyPlace, find_study, home_folder, study_names
from sweeps.spec import load_spec


def test_home_is_the_variable_else_the_users_data_folder(tmp_path: Path) -> None:
    assert home_folder({"SPECSWEEP_HOME": "/data/sweeps"}) == Path("/data/sweeps")
    assert home_folder({"XDG_DATA_HOME": "/x"}) == Path("/x/specsweep")
    assert home_folder({}) == Path.home() / ".local/share/specsweep"
    assert home_folder({"SPECSWEEP_HOME": "~/s"}) == Path.home() / "s"


@pytest.mark.parametrize("text", ["studies", "./studies", "/ray/working_dir_files/_ray_pkg_0a1b/studies"])
def test_home_is_never_where_a_job_works(text: str) -> None:
    with pytest.raises(InputError, match=r"^SPECSWEEP_HOME: "):
        home_folder({"SPECSWEEP_HOME": text})


def test_a_saved_study_is_found_by_name_and_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    spec = load_spec(write_spec(tmp_path))
    save_spec(claim_study(spec, home), spec)
    assert study_names(home) == ["case"]
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*")) == [
        "case",
        "case/spec.json",
        "case/study.json",
    ]
    by_name = find_study("case", home)
    monkeypatch.chdir(home)
    assert by_name == find_study(str(home / "case"), Path("/elsewhere")) == find_study("./case", Path("/elsewhere"))
    assert by_name.read_spec() == spec
    assert by_name.storage_url(spec) == f"sqlite:///{home}/case/study.db"
    assert by_name.tracking_uri(spec) == f"sqlite:///{home}/mlflow.db"


def test_an_unknown_study_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no study 'cese' in .*; there is none yet"):
        find_study("cese", tmp_path)
    spec = load_spec(write_spec(tmp_path))
    save_spec(StudyPlace(home=tmp_path, folder=tmp_path / "case"), spec)
    with pytest.raises(InputError, match=r"no study 'cese' in .*; did you mean case\?"):
        find_study("cese", tmp_path)


def test_a_broken_snapshot_is_named(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path))
    place = StudyPlace(home=tmp_path, folder=tmp_path / "case")
    save_spec(place, spec)
    content = json.loads(place.spec_file.read_text())
    place.spec_file.write_text(json.dumps(content | {"target": 3}))
    with pytest.raises(InputError, match=r"spec\.json:1: target: 3 is not text"):
        place.read_spec()
