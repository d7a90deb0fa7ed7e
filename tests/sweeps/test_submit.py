"""Submitting without a cluster: the request that would be sent, and what a missing job server looks like."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from spec_files import MINIMAL, write_spec

from search_spaces.errors import InputError
from sweeps.cli import main
from sweeps.spec import relative_files
from sweeps.submit import MAX_MISSED, STOP_WAIT_S, job_request

Capture = pytest.CaptureFixture[str]


class JobServer:
    """Stands for Ray's client; remembers what was sent."""

    status, exit_code, error = "SUCCEEDED", 0, ""
    sent: ClassVar[dict[str, Any]] = {}

    def __init__(self, address: str) -> None:
        if self.error:
            raise RuntimeError(self.error)

    def submit_job(self, *, entrypoint: str, runtime_env: dict[str, Any], submission_id: str | None) -> str:
        size = Path(runtime_env["working_dir"]).stat().st_size
        type(self).sent = {"entrypoint": entrypoint, "env": runtime_env["env_vars"], "id": submission_id, "size": size}
        return submission_id or "raysubmit_1"

    looks: ClassVar[list[str]] = []
    """What comes of the looks before the last: the log breaks off each time, the job runs or nobody answers."""

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        yield "trial 1 "
        if "log broken" in self.looks[:1]:
            raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")
        yield "finished\n"

    def get_job_info(self, job: str) -> Any:
        if self.looks:
            if self.looks.pop(0) == "no answer":
                raise ConnectionError("Failed to connect\nto Ray")
            return types.SimpleNamespace(
                status=types.SimpleNamespace(value="RUNNING"), driver_exit_code=None, message=None
            )
        status = types.SimpleNamespace(value=self.status)
        return types.SimpleNamespace(status=status, driver_exit_code=self.exit_code, message="exit\ncode")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> type[JobServer]:
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.job_submission", types.SimpleNamespace(JobSubmissionClient=JobServer))
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "SPECSWEEP_HOME"):
        monkeypatch.setenv(name, "")
    for name, value in {"status": "SUCCEEDED", "exit_code": 0, "error": "", "sent": {}, "looks": []}.items():
        monkeypatch.setattr(JobServer, name, value)
    return JobServer


def test_every_argument_stays_one_argument(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    spec = write_spec(tmp_path / "specs", name="my sweep.yaml")
    overrides = ["space.tp_size=[1, 2]", "study=it's"]
    request = job_request(
        spec, tmp_path, overrides=overrides, relative_files=relative_files(spec), environment={"A": "b"}
    )
    wanted = ["specsweep", "run", "specs/my sweep.yaml", "--set", overrides[0], "--set", overrides[1]]
    assert shlex.split(request.entrypoint) == wanted
    assert request.environment == {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S), "A": "b"}


def test_only_what_travels_may_be_named_by_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    spec = write_spec(tmp_path / "specs", MINIMAL.replace("models/draft", "../models/draft"))
    named = relative_files(spec)
    assert set(named) == {"target", "draft"}
    with pytest.raises(InputError, match=r"draft: .* is outside the job's working directory .*; give an absolute path"):
        job_request(spec, tmp_path / "specs", relative_files=named, environment={})
    assert job_request(spec, tmp_path, relative_files=named, environment={})
    with pytest.raises(InputError, match="not inside the job's working directory"):
        job_request(spec, tmp_path / "specs" / "models", relative_files={}, environment={})
    absolute = ["draft=/models/draft", "target=org/name"]
    assert relative_files(spec, absolute) == {}


def test_a_job_is_followed_and_its_exit_code_is_ours(tmp_path: Path, capsys: Capture, server: type[JobServer]) -> None:
    spec = str(write_spec(tmp_path))
    assert main(["submit", spec, "--set", "draft=/cluster/only"]) == 0
    assert capsys.readouterr().out == "job raysubmit_1 on http://127.0.0.1:8265\ntrial 1 finished\n"
    assert server.sent["entrypoint"] == "specsweep run case.yaml --set draft=/cluster/only"
    assert server.sent["size"] > 0
    for status, driver, ours in (("FAILED", 2, 2), ("FAILED", None, 1), ("FAILED", -9, 1), ("STOPPED", None, 130)):
        server.status, server.exit_code = status, driver  # type: ignore[assignment]
        assert main(["submit", spec]) == ours
        assert f"job raysubmit_1 {status.lower()}: exit code\n" in capsys.readouterr().err


def test_a_log_that_ends_before_its_job_is_taken_up_again(
    tmp_path: Path, capsys: Capture, server: type[JobServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.submit.POLL_S", 0.0)
    spec = str(write_spec(tmp_path))
    server.status, server.exit_code = "FAILED", 3
    server.looks[:] = ["log broken", "running", *["no answer"] * (MAX_MISSED - 1), "running", "no answer"]
    assert main(["submit", spec]) == 3
    out, error = capsys.readouterr()
    assert out == "job raysubmit_1 on http://127.0.0.1:8265\ntrial 1 finished\n"
    assert "job raysubmit_1 failed: exit code" in error
    assert server.looks == []


def test_a_job_server_that_goes_away_is_code_3(
    tmp_path: Path, capsys: Capture, server: type[JobServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.submit.POLL_S", 0.0)
    server.looks[:] = ["no answer"] * MAX_MISSED
    assert main(["submit", str(write_spec(tmp_path))]) == 3
    error = capsys.readouterr().err
    assert "Failed to connect to Ray; job raysubmit_1 is not followed any more and may go on" in error
    assert error.count("\n") == 1


def test_a_spec_that_git_ignores_is_not_sent(tmp_path: Path, capsys: Capture, server: type[JobServer]) -> None:
    spec = write_spec(tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for ignored, message in (
        ("*.yaml", "case.yaml would not"),
        ("models/draft", "draft: models/draft/"),
        ("*", "case"),
    ):
        (tmp_path / ".gitignore").write_text(ignored)
        assert main(["submit", str(spec)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert "would not travel" in error
        assert error.count("\n") == 1
        assert server.sent == {}


def test_no_wait_and_json(
    tmp_path: Path, capsys: Capture, server: type[JobServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECSWEEP_HOME", "/shared/studies")
    spec = str(write_spec(tmp_path))
    assert main(["submit", spec, "--no-wait", "--json", "--submission-id", "mine", "--env", "RAY_AUTH_MODE=token"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["schema"], shown["submission_id"], shown["state"], shown["exit_code"]) == (
        1,
        "mine",
        "submitted",
        None,
    )
    assert server.sent["env"]["SPECSWEEP_HOME"] == "/shared/studies"
    assert server.sent["env"]["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env", "x"], "--env x: write NAME=VALUE"),
        (["--address", "ray://head:10001"], "'ray://head:10001' is not the URL of a job server"),
        (["--working-dir", "{tmp}/models"], "not inside the job's working directory"),
        (["--set", "space.num_stepz=[1]"], "did you mean num_steps?"),
    ],
)
def test_bad_input(tmp_path: Path, capsys: Capture, server: type[JobServer], argv: list[str], message: str) -> None:
    spec = str(write_spec(tmp_path))
    assert main(["submit", spec, *(arg.format(tmp=tmp_path) for arg in argv)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert server.sent == {}


def test_authentication_is_explained(tmp_path: Path, capsys: Capture, server: type[JobServer]) -> None:
    server.error = "Authentication required:\n401"
    assert main(["submit", str(write_spec(tmp_path))]) == 3
    error = capsys.readouterr().err
    assert "set RAY_AUTH_MODE (token or disabled) to the same on the cluster and here" in error
    assert error.count("\n") == 1


def test_no_job_server_is_code_3(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")
    assert main(["submit", str(write_spec(tmp_path)), "--address", f"http://127.0.0.1:{port}"]) == 3
    out, error = capsys.readouterr()
    assert error.startswith(f"specsweep: Ray's job server http://127.0.0.1:{port}: ")
    assert error.count("\n") == 1
    assert out == ""
