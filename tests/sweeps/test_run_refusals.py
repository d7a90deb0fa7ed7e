"""What cannot begin or go on, or is only asked about: refused or shown, and everything is as it was."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.fake_interpreter import make_fake_python
from small_sweep import LIMIT_S, ROOT, SPEC, environment, listing, program
from spec_files import write_spec

from search_spaces.errors import InputError
from sweeps.claiming import claim_study, save_spec
from sweeps.cli import main
from sweeps.compose import run_sweep
from sweeps.lease import hold_folder
from sweeps.observers import Observers
from sweeps.spec import load_spec

pytestmark = pytest.mark.timeout(LIMIT_S + 60)
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A spec whose study does not exist; whatever is refused must leave the folder as it was."""
    make_fake_python(tmp_path)
    spec = write_spec(tmp_path, SPEC, name="fresh.yaml")
    monkeypatch.setenv("SPECSWEEP_HOME", str(tmp_path / "home"))
    before = listing(tmp_path)
    yield spec
    assert listing(tmp_path) == before


def refused(capsys: Capture, argv: list[str], code: int) -> str:
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize(
    ("changes", "message", "code"),
    [
        (["space.num_steps=[]"], "space.num_steps: the list is empty", 2),
        (
            ["space.eagle_topk=[8]", "space.num_steps=[1]", "space.num_draft_tokens=[32]"],
            "none of the 2 settings is legal",
            2,
        ),
        (["target=/nowhere"], "give an absolute path", 2),
        (["workload.prompts=1000"], "96 usable prompts", 2),
        (["workload.prompts=none.jsonl"], "no such file or folder", 2),
        (["cluster.gpus=1", "space.tp_size=[2]"], "2 is more than cluster.gpus allows (1)", 2),
        (["engine.python=/nowhere/python"], "/nowhere/python cannot be run", 3),
        (["cluster.address=127.0.0.1:9"], "127.0.0.1:9: no Ray listens there: Connection refused", 3),
        (["tracking.uri=http://127.0.0.1:9"], "tracking.uri http://127.0.0.1:9: no answer", 3),
        (["search.storage=sqlite:////proc/none/study.db"], "search.storage: sqlite:////proc/none/study.db: ", 3),
    ],
)
def test_what_cannot_begin_leaves_nothing(
    fresh: Path, capsys: Capture, changes: list[str], message: str, code: int
) -> None:
    argv = ["run", str(fresh)]
    for change in changes:
        argv += ["--set", change]
    assert message in refused(capsys, argv, code)


def test_an_interpreter_without_sglang_is_code_3(fresh: Path, capsys: Capture) -> None:
    bare = fresh.parent / "fake_python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    assert "has no SGLang (no module named sglang)" in refused(capsys, ["run", str(fresh)], 3)


@pytest.mark.parametrize("variable", ["SGLANG_SIMULATE_ACC_LEN", "SGLANG_IS_IN_CI", "MLFLOW_RUN_ID"])
def test_a_variable_under_which_nothing_is_to_be_measured_is_code_3_before_anything_starts(
    fresh: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv(variable, "1")
    assert variable in refused(capsys, ["run", str(fresh)], 3)


def test_a_port_in_use_is_bad_input(fresh: Path, capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = ["run", str(fresh), "--set", f"engine.port={port}", "--set", "cluster.max_parallel=1"]
        assert f"engine.port: {port} cannot be used on 127.0.0.1: Address already in use" in refused(capsys, argv, 2)


def test_an_unwritable_home_is_bad_input(fresh: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSWEEP_HOME", str(fresh / "below" / "a" / "file"))
    assert "cannot be written: Not a directory" in refused(capsys, ["run", str(fresh)], 2)
    monkeypatch.setenv("SPECSWEEP_HOME", "relative")
    assert "SPECSWEEP_HOME: 'relative' is not an absolute path" in refused(capsys, ["run", str(fresh)], 2)


def test_a_dry_run_shows_the_plan_and_leaves_nothing(fresh: Path, capsys: Capture) -> None:
    assert main(["run", str(fresh), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "distinct servers         4" in text
    assert f"Would begin the study in {fresh.parent}/home/small" in text
    assert main(["run", str(fresh), "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown.pop("exists"), shown.pop("folder")) == (False, str(fresh.parent / "home" / "small"))
    assert main(["plan", str(fresh), "--json"]) == 0
    assert shown == json.loads(capsys.readouterr().out)


def test_a_study_that_another_driver_begins_is_left_to_it(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the other one has written the spec when this one is refused."""
    make_fake_python(tmp_path)
    path, home = write_spec(tmp_path, SPEC), tmp_path / "home"
    monkeypatch.setenv("SPECSWEEP_HOME", str(home))
    spec = load_spec(path)
    place = claim_study(spec, home)
    with hold_folder(place.records.lock_path):
        assert "in use by process" in refused(capsys, ["run", str(path)], 2)
        assert listing(place.folder) == ["lock"]
        save_spec(place, spec)
        before = {file: file.read_bytes() for file in place.folder.iterdir()}
        for command in (["run", str(path)], ["resume", "small"]):
            assert "in use by process" in refused(capsys, [*command, "--set", "budget.trials=5"], 2)
        assert {file: file.read_bytes() for file in place.folder.iterdir()} == before


def test_a_study_that_exists_now_is_not_begun_with_another_space(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drivers looked, and found nothing: the first one's study stays."""
    make_fake_python(tmp_path)
    path, home = write_spec(tmp_path, SPEC), tmp_path / "home"
    place, other = claim_study(load_spec(path), home), load_spec(path, ["space.num_steps=[1, 5]"])
    save_spec(place, load_spec(path))
    with pytest.raises(InputError, match=r"another space\.num_steps"):
        run_sweep(other, place, Observers([]))
    assert place.read_spec() == load_spec(path)


@pytest.mark.parametrize("command", ["resume", "status", "report", "sync"])
def test_an_unknown_study_is_bad_input(fresh: Path, capsys: Capture, command: str) -> None:
    assert "no study 'other' in" in refused(capsys, [command, "other"], 2)


def test_no_gpu_is_code_3_and_leaves_no_study(fresh: Path) -> None:
    done = subprocess.run(
        program("run", str(fresh), "--set", "engine.device=cuda"),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(fresh.parent / "home"),
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "cuda was asked for but this machine has no GPU" in done.stderr
