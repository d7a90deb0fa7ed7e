"""A sweep as a Ray job, on a real cluster of one node: submitted, followed, stopped, and resumed here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from doubles.fake_sglang import make_fake_python
from spec_files import write_spec

ROOT = Path(__file__).parents[2]
LIMIT_S = 400
pytestmark = pytest.mark.timeout(LIMIT_S + 60)

SPEC = """\
study: job
target: models/target
draft: models/draft
engine: {python: PYTHON, device: cpu, switching: off, sglang_version: 0.5.23, ready_timeout_s: 120}
cluster: {gpus: 2, max_parallel: 1}
space: {num_steps: [1], eagle_topk: [1], num_draft_tokens: [2]}
workload: {prompts: 4, concurrency: [2], max_new_tokens: 8, warmup_prompts: 1}
budget: {confirmations: 0}
tracking: {enabled: false}
"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running head node; `environment` is what its users have."""

    url: str
    environment: dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`ray start --head` with `specsweep` on its PATH, as the README asks of a cluster."""
    bin_folder = tmp_path_factory.mktemp("bin")
    script = bin_folder / "specsweep"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m sweeps "$@"\n')
    script.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    # an installed package needs no PYTHONPATH
    found = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment = kept | found | {"RAY_AUTH_MODE": "disabled"}
    port, dashboard, *others = free_ports(5)
    # Unix sockets allow for 107 bytes
    scratch = tempfile.mkdtemp(prefix="ray-")
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2"]
    command += ["--port", str(port), "--dashboard-port", str(dashboard), "--temp-dir", scratch]
    command += ["--object-store-memory", str(100 * 2**20), "--disable-usage-stats"]
    for name, other in zip(
        ("dashboard-agent-listen-port", "ray-client-server-port", "node-manager-port"), others, strict=True
    ):
        command += [f"--{name}", str(other)]
    head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        url = f"http://127.0.0.1:{dashboard}"
        wait_for(url, head)
        yield Cluster(url=url, environment=environment)
    finally:
        head.send_signal(signal.SIGTERM)
        head.wait(timeout=60)
        shutil.rmtree(scratch, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(url: str, head: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s and head.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api/version", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError("the head node did not come up")


def specsweep(cluster: Cluster, *argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweeps", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=cluster.environment | {"SPECSWEEP_HOME": str(home)},
        check=False,
        timeout=LIMIT_S,
    )


def test_a_job_runs_the_sweep_and_leaves_its_study_in_the_home(cluster: Cluster, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, SPEC.replace("PYTHON", str(make_fake_python(tmp_path))), name="job.yaml")
    home = tmp_path / "home"
    done = specsweep(cluster, "submit", str(spec), "--address", cluster.url, "--set", "study=two words", home=home)
    assert done.returncode == 2, done.stdout
    done = specsweep(
        cluster, "submit", str(spec), "--address", cluster.url, "--set", "space.num_steps=[1, 3]", home=home
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"study job begins in {home}/job" in done.stdout
    assert "(run this)" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    status = json.loads(specsweep(cluster, "status", "job", "--json", home=home).stdout)
    assert (status["records"], status["left"], status["running"]) == (3, 0, False)


def test_the_exit_code_is_the_drivers(cluster: Cluster, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, SPEC.replace("PYTHON", "/nowhere/python"), name="job.yaml")
    done = specsweep(cluster, "submit", str(spec), "--address", cluster.url, "--json", home=tmp_path / "home")
    assert done.returncode == 3, done.stderr
    result = json.loads(done.stdout)
    assert (result["state"], result["exit_code"]) == ("failed", 3)
    assert "engine.python: /nowhere/python cannot be run" in done.stderr


def test_a_stopped_job_is_resumed_here(cluster: Cluster, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    fake = json.dumps({"step_ms": 300, "count_file": str(starts)})
    text = SPEC.replace("PYTHON", str(make_fake_python(tmp_path)))
    spec = write_spec(
        tmp_path, text.replace("device: cpu", f"device: cpu, env: {{FAKE_SGLANG: '{fake}'}}"), name="job.yaml"
    )
    home = tmp_path / "home"
    argv = ["submit", str(spec), "--address", cluster.url, "--no-wait", "--submission-id", "slow"]
    submitted = specsweep(cluster, *argv, home=home)
    assert submitted.returncode == 0, submitted.stderr
    wait_until(starts.exists)
    stop = [sys.executable, "-m", "ray.scripts.scripts", "job", "stop", "slow", "--address", cluster.url]
    subprocess.run(stop, env=cluster.environment, check=True, capture_output=True, timeout=LIMIT_S)
    wait_until(lambda: not processes_with(str(starts)))
    status = json.loads(specsweep(cluster, "status", "job", "--json", home=home).stdout)
    assert (status["running"], status["records"], status["left"]) == (False, 0, 2)
    # the job's own copy of the models goes with Ray's session
    models = [f"--set=target={tmp_path}/models/target", f"--set=draft={tmp_path}/models/draft"]
    resumed = specsweep(cluster, "resume", "job", "--json", *models, home=home)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["reason"] == "exhausted"
    assert len(starts.read_text().splitlines()) == 3


def wait_until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 120
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError("it never came true")
        time.sleep(0.5)


def processes_with(marker: str) -> list[int]:
    """Processes, this one apart, that have `marker` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            content = (process / "environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in content and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found
