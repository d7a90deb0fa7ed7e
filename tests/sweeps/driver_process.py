"""A driver of a sweep as a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from actors.engines.guarded_process import MARKER
from results.store import StudyFolder

DRIVER = Path(__file__).with_name("drive.py")


class Driver:
    """One driver process; events are read as it prints them."""

    def __init__(self, spec: Path, home: Path, *moment: str) -> None:
        root = Path(__file__).parents[2]
        environment = os.environ | {"PYTHONPATH": str(root)}
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(spec), str(home), *moment],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, event: str | tuple[str, ...], trial: str = "") -> dict[str, Any]:
        """Read on to this event, or the first of these."""
        events = (event,) if isinstance(event, str) else event
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue  # what Ray prints about an actor that is lost
            told: dict[str, Any] = json.loads(line)
            if told["event"] in events and trial in ("", told.get("trial")):
                return told
        assert self.process.stderr is not None
        raise AssertionError(f"no {event} {trial}: {self.process.stderr.read()[-3000:]}")

    def end(self, timeout_s: float = 60.0) -> int:
        try:
            self.process.communicate(timeout=timeout_s)
        finally:
            self.process.kill()
        return self.process.returncode

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        assert self.end() == -signal.SIGKILL


def servers(study: str) -> dict[int, int]:
    """The processes of this study's servers that live, with the port of those that were given one, else 0."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if f"{MARKER}={study}-".encode() in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                found[pid] = int(words[words.index("--port") + 1]) if "--port" in words else 0
    return found


def wait_for_server(study: str) -> int:
    """Until a server of the study answers; its port."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for port in {port for port in servers(study).values() if port}:
            # a server that is measured answers between two batches
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10):
                return port
        time.sleep(0.05)
    raise AssertionError("no server answers")


def is_busy(port: int) -> bool:
    """Whether a server is answering requests right now."""
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/loads?include=core", timeout=2) as answer:
            loads = json.load(answer)["loads"]
        return any(load["num_running_reqs"] for load in loads)
    return False


def wait_for_launch(study: str) -> None:
    """Until a server of the study has been started, long before it can answer."""
    end = time.monotonic() + 120
    while not any(servers(study).values()):
        assert time.monotonic() < end, "no server was started"
        time.sleep(0.05)


def wait_for_none(study: str, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while left := servers(study):
        assert time.monotonic() < end, f"left behind: {left}"
        time.sleep(0.1)


def digests(folder: StudyFolder) -> dict[str, str]:
    """Every file of every record by name."""
    files = sorted(path for path in folder.records_path.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
