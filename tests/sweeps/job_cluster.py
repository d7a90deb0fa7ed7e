"""A cluster of one node for tests of jobs: `ray start --head` on ports and in a folder of its own."""

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 400


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running head node; `environment` is what its users have."""

    url: str
    environment: dict[str, str]


@contextmanager
def head_node(bin_folder: Path, **environment: str) -> Iterator[Cluster]:
    """`ray start --head` with `specsweep` on its PATH, as the README asks of a cluster; it ends with the block.

    `bin_folder` is an existing folder for the command; `environment` is added to the head's and its users'.
    """
    script = bin_folder / "specsweep"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m sweeps "$@"\n')
    script.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    # an installed package needs no PYTHONPATH
    found = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment = kept | found | {"RAY_AUTH_MODE": "disabled"} | environment
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
        try:
            head.wait(timeout=60)
        finally:
            head.kill()
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


def specsweep(cluster: Cluster, *argv: str, home: Path, timeout_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """One command of a user of this cluster, on this machine."""
    return subprocess.run(
        [sys.executable, "-m", "sweeps", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=cluster.environment | {"SPECSWEEP_HOME": str(home)},
        check=False,
        timeout=timeout_s,
    )


def ray_job(cluster: Cluster, action: str, *argv: str, limit_s: float = LIMIT_S) -> str:
    """`ray job ACTION ...` from the repository's root; what it printed. Fails when the command does."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "job", action, "--address", cluster.url, *argv]
    done = subprocess.run(
        command, env=cluster.environment, cwd=ROOT, check=False, capture_output=True, text=True, timeout=limit_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def job_state(cluster: Cluster, submission_id: str) -> str:
    """As the job server tells it: RUNNING, STOPPED, SUCCEEDED, FAILED."""
    with urllib.request.urlopen(f"{cluster.url}/api/jobs/{submission_id}", timeout=30) as answer:
        return str(json.load(answer)["status"])


def wait_until(true: Callable[[], bool], timeout_s: float = 120.0, every_s: float = 0.5) -> None:
    end_s = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError("it never came true")
        time.sleep(every_s)


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
