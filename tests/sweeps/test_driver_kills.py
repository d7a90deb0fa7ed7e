"""A real driver on a real Ray, killed at five moments and then told to stop: every trial counts exactly once.

The server is a stand-in under the real guard; records, Optuna's storage and MLflow's are the real ones.
"""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from doubles.fake_sglang import make_fake_python
from tiny_models import TinyPair

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

    def until(self, event: str, trial: str = "") -> dict[str, Any]:
        """Read on to this event."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            if told["event"] == event and trial in ("", told.get("trial")):
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
    """Ports of the stand-in servers of this study that live, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if f"{MARKER}={study}-".encode() in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                found[pid] = int(words[words.index("--port") + 1])
    return found


def wait_for_server(study: str) -> int:
    """Until a server of the study answers; its port."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for port in servers(study).values():
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return port
        time.sleep(0.05)
    raise AssertionError("no server answers")


def wait_for_none(study: str, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while left := servers(study):
        assert time.monotonic() < end, f"left behind: {left}"
        time.sleep(0.1)


def digests(folder: StudyFolder) -> dict[str, str]:
    """Every file of every record by name."""
    files = sorted(path for path in folder.records_path.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def sweep(tmp_path: Path, tiny_pair: TinyPair, ray_address: str) -> Iterator[tuple[Path, StudyFolder]]:
    """A spec of five servers (one baseline), one at a time, each measured for about a second."""
    name = f"kills{os.getpid()}"
    behaviour = {"step_ms": 20, "grandchildren": True, "good_ids": [-1, 2, 6]}
    spec = {
        "study": name,
        "target": str(tiny_pair.target),
        "draft": str(tiny_pair.draft),
        "engine": {
            "python": str(make_fake_python(tmp_path)),
            "device": "cpu",
            "env": {"FAKE_SGLANG": json.dumps(behaviour)},
            "stop_grace_s": 1.0,
            "switching": "off",
        },
        "cluster": {"address": ray_address, "max_parallel": 1},
        "space": {
            "layout": ["default", [0, 3, 7]],
            "num_steps": [1, 2],
            "eagle_topk": [1],
            "num_draft_tokens": [2, 4],
            "tp_size": [1],
        },
        "suspect": {"layout": "default", "num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 4},
        "isolate": False,
        "workload": {"prompts": 2, "concurrency": [1], "max_new_tokens": 16, "warmup_prompts": 1},
        "search": {"sampler": "random"},
        "budget": {"confirmations": 0},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    yield path, StudyFolder(tmp_path / "home" / name)
    wait_for_none(name)


@pytest.mark.timeout(600)
def test_every_trial_counts_once_whenever_the_driver_is_killed(sweep: tuple[Path, StudyFolder]) -> None:
    spec, folder = sweep
    study, home = folder.path.name, folder.path.parent
    kept: dict[str, str] = {}

    def check_kept() -> None:
        """What was recorded before is there to the byte."""
        now = digests(folder)
        assert {path: now.get(path) for path in kept} == kept
        kept.update(now)
        wait_for_none(study)

    # 1: while the baseline's server starts
    driver = Driver(spec, home)
    driver.until("started", "baseline-tp1-a1")
    time.sleep(0.3)
    driver.kill()
    assert folder.trial_ids() == ()
    check_kept()

    # 2: while the first trial of the search is measured
    driver = Driver(spec, home)
    driver.until("finished", "baseline-tp1-a1")
    driver.until("started", "t0000-a1")
    wait_for_server(study)
    driver.kill()
    assert folder.trial_ids() == ("baseline-tp1-a1",)
    check_kept()

    # 3: measured, but not written; it is the second attempt at the suspect
    driver = Driver(spec, home, "before_write", "t0001-a2")
    assert driver.end(90) == -signal.SIGKILL
    assert folder.trial_ids() == ("baseline-tp1-a1",)
    check_kept()

    # 4: written, but the study was not told
    driver = Driver(spec, home, "after_write", "t0002-a3")
    assert driver.end(90) == -signal.SIGKILL
    assert folder.trial_ids() == ("baseline-tp1-a1", "t0002-a3")
    check_kept()

    # 5: told, but MLflow and the terminal do not know
    driver = Driver(spec, home, "after_tell", "t0003-a1")
    assert driver.end(90) == -signal.SIGKILL
    assert folder.trial_ids() == ("baseline-tp1-a1", "t0002-a3", "t0003-a1")
    check_kept()

    # told to stop politely while measuring
    driver = Driver(spec, home)
    driver.until("started", "t0004-a1")
    wait_for_server(study)
    driver.process.send_signal(signal.SIGTERM)
    assert driver.until("interrupted")["trial"] == "t0004-a1"
    assert driver.until("result")["reason"] == "interrupted"
    assert driver.end() == 130
    check_kept()

    driver = Driver(spec, home)
    result = driver.until("result")
    assert driver.end() == 0
    assert (result["reason"], result["done"], result["failed"]) == ("exhausted", 5, 0)
    check_kept()

    records = folder.records()
    assert len(records) == len({record.effective.identity for record in records}) == 5
    assert all(record.ok for record in records)
    by_id = {record.trial_id: record for record in records}
    assert by_id["t0002-a3"].role == "suspect"
    assert (by_id["t0002-a3"].attempt, by_id["t0002-a3"].retry_of) == (3, "t0001-a2")
    assert by_id["t0005-a2"].retry_of == "t0004-a1"

    stored = optuna.load_study(study_name=study, storage=f"sqlite:///{folder.path / 'study.db'}")
    told = [trial for trial in stored.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    assert sorted(trial.user_attrs["trial_id"] for trial in told) == sorted(by_id.keys() - {"baseline-tp1-a1"})
    lost = [(t.number, t.user_attrs["reason"]) for t in stored.trials if t.state == optuna.trial.TrialState.FAIL]
    assert lost == [(0, "stale"), (1, "stale"), (4, "interrupted")]
    assert len(told) + len(lost) == len(stored.trials)
    # the best under the layout that the stand-in likes
    best = by_id[result["best"]].effective
    assert best.layout == (0, 3, 7)

    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    runs = [(run.data.tags["trial_id"], run.info.status) for run in client.search_runs([experiment.experiment_id])]
    assert sorted(run for run in runs if run[1] == "FINISHED") == [(name, "FINISHED") for name in sorted(by_id)]
    killed = {name for name, status in runs if status == "KILLED"}
    assert killed == {"baseline-tp1-a1", "t0000-a1", "t0001-a2", "t0004-a1"}
    assert {status for _, status in runs} == {"FINISHED", "KILLED"}


def test_a_second_driver_is_refused_while_the_first_lives(sweep: tuple[Path, StudyFolder]) -> None:
    spec, folder = sweep
    first = Driver(spec, folder.path.parent)
    try:
        first.until("started", "baseline-tp1-a1")
        second = Driver(spec, folder.path.parent)
        _, errors = second.process.communicate(timeout=60)
        assert f"in use by process {first.process.pid} on " in errors
        assert folder.records() == () or len(folder.records()) == 1
    finally:
        # twice Ctrl-C: at once, and still nothing stays behind
        first.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        first.process.send_signal(signal.SIGINT)
        first.end()
