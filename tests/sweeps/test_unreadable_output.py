"""Output that nobody can read: what a command had to show is kept, and its exit code stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_sweep import SPEC
from spec_files import write_spec

from sweeps import driving
from sweeps.claiming import claim_study, save_spec
from sweeps.cli import main
from sweeps.commands.options import silence
from sweeps.compose import SweepResult
from sweeps.progress import Standing
from sweeps.session import Recovered
from sweeps.spec import load_spec

Capture = pytest.CaptureFixture[str]


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
