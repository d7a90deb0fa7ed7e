"""A whole sweep from the command line: real Ray, real Optuna and MLflow stores, stand-in servers."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from doubles.fake_interpreter import make_fake_python
from spec_files import write_spec

from results import store
from search_spaces.errors import InputError
from sweeps import driving
from sweeps.cli import main
from sweeps.commands.options import silence
from sweeps.compose import SweepResult, run_sweep
from sweeps.home import claim_study, save_spec
from sweeps.lease import hold_folder
from sweeps.observers import Observers
from sweeps.progress import Standing
from sweeps.session import Recovered
from sweeps.spec import load_spec

ROOT = Path(__file__).parents[2]
LIMIT_S = 500
pytestmark = pytest.mark.timeout(LIMIT_S + 60)
Capture = pytest.CaptureFixture[str]
SPEC = """\
study: small
target: models/target
draft: models/draft
engine:
  python: ./fake_python
  device: cpu
  sglang_version: 0.5.23
  ready_timeout_s: 60
  switching: off
cluster: {gpus: 2}
space:
  layout: [shipped, [0, 3, 7]]
  num_steps: [1, 3]
  eagle_topk: [1]
  num_draft_tokens: [8]
workload: {prompts: 8, concurrency: [2], max_new_tokens: 16, warmup_prompts: 2}
budget: {trials: 3, confirmations: 0}
"""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A study that was run: its spec, the home of all studies, what the command said."""

    spec: Path
    home: Path
    out: str
    err: str
    code: int


def environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    return kept | {"SPECSWEEP_HOME": str(home), "RAY_AUTH_MODE": "disabled", "MLFLOW_DISABLE_TELEMETRY": "true"}


def program(*argv: str) -> list[str]:
    return [sys.executable, "-m", "sweeps", *argv]


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


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


def broken_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def dead_terminal() -> int:
    master, terminal = os.openpty()
    os.close(master)
    return terminal


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("unwritable", "said"),
    [(broken_pipe, ""), (dead_terminal, ""), (full_disk, "specsweep: standard output: No space left on device\n")],
)
def test_a_report_that_nobody_can_read_is_kept_and_the_exit_code_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    *,
    unwritable: Callable[[], int],
    said: str,
    as_json: bool,
) -> None:
    spec = load_spec(write_spec(tmp_path, SPEC))
    place = claim_study(spec, tmp_path / "home")
    save_spec(place, spec)
    standing = Standing(done=0, failed=0, running=0, left=0, elapsed_s=1.0, time_left_s=None)
    nothing = Recovered(told=(), again=(), given_up=())
    result = SweepResult(reason="interrupted", standing=standing, recovered=nothing, best=None)
    monkeypatch.setattr(driving, "run_sweep", lambda *_: result)
    with os.fdopen(unwritable(), "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert driving.drive(spec, place, as_json=as_json) == 130
        print("what comes later goes nowhere", flush=True)
    assert [place.records.report_path(kind).exists() for kind in ("md", "html", "json")] == [True] * 3
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", ["report", "surface"])
def test_what_a_command_shows_is_kept_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    spec = load_spec(write_spec(tmp_path, SPEC))
    place = claim_study(spec, tmp_path / "home")
    save_spec(place, spec)
    monkeypatch.setattr("results.study_surface.study_surface", lambda *_: ["a point"])
    monkeypatch.setattr("results.surface.surface_json", lambda _: {"rows": []})
    with os.fdopen(broken_pipe(), "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main([command, str(place.folder), "--json", "--no-plots"]) == 1
        silence(stream)
    assert (place.folder / f"{command}.json").exists()


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
