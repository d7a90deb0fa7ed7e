"""A whole sweep from the command line: real Ray, real Optuna and MLflow stores, stand-in servers."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from doubles.fake_interpreter import make_fake_python
from small_sweep import LIMIT_S, ROOT, SPEC, environment, listing, program
from spec_files import write_spec

from results import store
from sweeps.cli import main

pytestmark = pytest.mark.timeout(LIMIT_S + 60)
Capture = pytest.CaptureFixture[str]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A study that was run: its spec, the home of all studies, what the command said."""

    spec: Path
    home: Path
    out: str
    err: str
    code: int


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("swept")
    engine, inner = make_fake_python(folder), folder / "inner_python"
    engine.rename(inner)
    engine.write_text(f'#!/bin/sh\necho "$2" >> "{folder}/asked"\nexec "{inner}" "$@"\n')
    engine.chmod(0o755)
    spec, home = write_spec(folder, SPEC, name="small.yaml"), folder / "home"
    done = subprocess.run(
        program("run", str(spec)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(home),
        check=False,
        timeout=LIMIT_S,
    )
    return Swept(spec=spec, home=home, out=done.stdout, err=done.stderr, code=done.returncode)


@pytest.fixture
def at_home(swept: Swept, monkeypatch: pytest.MonkeyPatch) -> Swept:
    monkeypatch.setenv("SPECSWEEP_HOME", str(swept.home))
    return swept


def test_a_sweep_ends_with_its_table_its_command_and_its_report(swept: Swept) -> None:
    assert (swept.code, swept.err) == (0, "")
    folder = swept.home / "small"
    assert swept.out.startswith(f"study small begins in {folder}\n")
    assert "baseline-tp1-a1  started    no speculation tp 1\n" in swept.out
    assert "[4 done, 0 running, 0 left, " in swept.out
    assert "budget.trials is spent, after " in swept.out
    assert "(run this)" in swept.out
    assert "--speculative-num-draft-tokens" in swept.out
    assert f"Report: {folder}/report.md\n" in swept.out
    assert f"MLflow: mlflow ui --backend-store-uri sqlite:///{swept.home}/mlflow.db\n" in swept.out
    assert "\x1b" not in swept.out
    assert "# Study small" in (folder / "report.md").read_text()
    assert (folder / "logs" / "driver.log").exists()


def test_the_engine_is_looked_for_once(swept: Swept) -> None:
    questions = (swept.spec.parent / "asked").read_text().split()
    assert (questions.count("find"), questions.count("resolve")) == (1, 1)


def test_a_study_with_nothing_left_to_do_starts_no_ray(
    at_home: Swept, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be launched")

    monkeypatch.setattr("sweeps.groups.connect", fail)
    monkeypatch.setattr("sweeps.groups.find_engine", fail)
    for argv in (["run", str(at_home.spec)], ["resume", "small", "--set", "budget.trials=3"]):
        assert main([*argv, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["reason"], len(report["settings"])) == ("trials", 3)


def test_status_says_what_is_done_and_left(at_home: Swept, capsys: Capture) -> None:
    assert main(["status", "small"]) == 0
    text = capsys.readouterr().out
    assert "4 recorded (0 failed), 1 left in the space" in text
    assert "specsweep resume small" in text
    assert main(["status", str(at_home.home / "small"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["schema"], status["study"], status["running"], status["records"], status["left"]) == (
        1,
        "small",
        False,
        4,
        1,
    )
    assert status["best"]["tp_size"] == 1
    assert status["best"]["accept_length"] > 1


def test_report_prints_each_of_its_kinds(at_home: Swept, capsys: Capture) -> None:
    assert main(["report", "small", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["study"]) == (1, "small")
    assert len(report["settings"]) == 3
    assert len(report["baselines"]) == 1
    assert main(["report", "small", "--format", "md", "--no-plots"]) == 0
    assert capsys.readouterr().out.startswith("# Study small\n")
    assert main(["report", "small", "--format", "html", "--no-plots"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert main(["report", "small", "--no-plots"]) == 0
    text = capsys.readouterr().out
    assert "(s,k,n)" in text
    assert "\x1b" not in text


def test_a_folder_that_cannot_be_written_is_reported_on(
    at_home: Swept, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["report", "small", "--json"]) == 0
    report = capsys.readouterr().out
    monkeypatch.setattr(store, "replace_file", read_only)
    assert main(["report", "small", "--json"]) == 0
    out, err = capsys.readouterr()
    assert out == report
    assert (err.startswith("specsweep: the report was not kept: "), err.count("\n")) == (True, 1)
    assert main(["report", "small"]) == 0
    out, err = capsys.readouterr()
    assert "(s,k,n)" in out
    assert "Report: " not in out
    assert "Read-only file system" in err


def read_only(path: Path, content: bytes) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_sync_finds_nothing_to_do_and_fills_an_empty_store(at_home: Swept, capsys: Capture, tmp_path: Path) -> None:
    assert main(["sync", "small", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (len(done["written"]), len(done["unchanged"]), done["removed"]) == (0, 4, 0)
    assert main(["sync", "small", "--set", f"tracking.uri=sqlite:///{tmp_path}/other.db"]) == 0
    assert "4 records, runs: 4 written, 0 as they were, 0 removed" in capsys.readouterr().out


def test_the_same_study_with_another_space_is_refused(at_home: Swept, capsys: Capture) -> None:
    before = listing(at_home.home)
    for argv in (
        ["run", str(at_home.spec), "--set", "space.num_steps=[1,5]"],
        ["resume", "small", "--set", "space.num_steps=[1,5]"],
    ):
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert "another space.num_steps: [1, 3] there, [1, 5] here" in error
        assert error.count("\n") == 1
    assert listing(at_home.home) == before


@pytest.mark.parametrize(
    ("change", "message", "code"),
    [
        ("cluster.address=127.0.0.1:9", "no Ray listens there", 3),
        ("engine.python=/nowhere/python", "/nowhere/python cannot be run", 3),
        ("tracking.uri=http://127.0.0.1:9", "no answer", 3),
        ("suspect={num_steps: 1, eagle_topk: 4, num_draft_tokens: 8}", "suspect: cannot run", 2),
    ],
)
def test_what_cannot_go_on_changes_nothing(
    at_home: Swept, capsys: Capture, change: str, message: str, code: int
) -> None:
    spec = (at_home.home / "small" / "spec.json").read_bytes()
    assert main(["resume", "small", "--set", "budget.trials=4", "--set", change]) == code
    assert message in capsys.readouterr().err
    assert (at_home.home / "small" / "spec.json").read_bytes() == spec


def test_resume_goes_on_and_keeps_what_is_there(swept: Swept, at_home: Swept) -> None:
    records = {path: path.read_bytes() for path in (swept.home / "small" / "records").rglob("*") if path.is_file()}
    done = subprocess.run(
        program("resume", "small", "--set", "budget.trials=4", "--json"),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(swept.home),
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, f"study small continues in {swept.home}/small")
    report = json.loads(done.stdout)
    assert report["reason"] in ("exhausted", "trials")
    assert len(report["settings"]) == 4
    assert {path: path.read_bytes() for path in records} == records
    spec = json.loads((swept.home / "small" / "spec.json").read_text())
    assert spec["budget"]["trials"] == 4


def test_ctrl_c_once_stops_cleanly(tmp_path: Path) -> None:
    make_fake_python(tmp_path)
    slow = SPEC.replace(
        "  ready_timeout_s: 60\n", "  ready_timeout_s: 60\n  env: {FAKE_SGLANG: '{\"step_ms\": 100}'}\n"
    )
    spec, home = write_spec(tmp_path, slow), tmp_path / "home"
    with subprocess.Popen(
        program("run", str(spec)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(home),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if "  started  " in line:
                process.send_signal(signal.SIGINT)
                break
        rest, error = process.stdout.read(), process.stderr.read()
        assert process.wait(timeout=LIMIT_S) == 130
    assert error == ""
    assert "broken off; it will be run again" in rest
    assert rest.endswith("Stopped; nothing is lost: specsweep resume small\n")
    assert (home / "small" / "spec.json").exists()
