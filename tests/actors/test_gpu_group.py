"""Which engine a group uses for trials, probes and traces, without Ray and without servers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from trial_builders import WORKLOAD, baseline, config

from actors import gpu_group
from actors.gpu_group import DeviceGrant, GpuGroup
from actors.job import TraceTask, TrialJob
from results.failures import Failure
from search_spaces.config import EngineConfig

REFUSED = Failure(phase="launch", kind="crash", message="as asked")
TASK = TraceTask(workload_id="w", concurrency=1, vocabulary=9, end_ids=frozenset(), max_bytes=10)


class Engine:
    """Notes what is done with it."""

    def __init__(self, kind: str, log: list[str]) -> None:
        self.kind, self._log = kind, log
        log.append(f"made {kind}")

    def apply(self, wanted: EngineConfig) -> Failure:
        self._log.append(f"{self.kind} applies")
        return REFUSED

    def log_tail(self, max_bytes: int = 65536) -> str:
        return ""

    def close(self) -> None:
        time.sleep(0.02)
        self._log.append(f"{self.kind} closed")

    def failure_now(self) -> None:
        return None


class Recorder(Engine):
    """An engine that can be traced and probed."""

    def trace(self, wanted: EngineConfig, order: object) -> Failure:
        self._log.append(f"{self.kind} traces")
        return REFUSED

    def probe(self, wanted: EngineConfig, order: object) -> Failure:
        return REFUSED


class Factory:
    """A factory of the servers' own kind."""

    def __init__(self, *, switches: bool) -> None:
        self.switches = switches
        self.log: list[str] = []
        self._folder = TemporaryDirectory()

    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> Any:
        if fresh or not self.switches:
            return Engine("plain", self.log)
        return Recorder("switching", self.log)

    def prober(self, grant: DeviceGrant) -> Any:
        return Recorder("recorder", self.log)

    def tracer(self, grant: DeviceGrant) -> Any:
        return Recorder("switching" if self.switches else "recorder", self.log)

    def trace_folder(self, grant: DeviceGrant) -> Path:
        return Path(self._folder.name) / grant.slot

    def clear(self, grant: DeviceGrant) -> None:
        self.log.append("cleared")

    def last_log(self, grant: DeviceGrant) -> str:
        return ""


class Foreign:
    """Servers that somebody else started."""

    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> Any:
        raise AssertionError("nothing is measured")

    def clear(self, grant: DeviceGrant) -> None: ...

    def last_log(self, grant: DeviceGrant) -> str:
        return ""


@pytest.fixture(autouse=True)
def _granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_group, "_assigned", lambda: ((), {"CPU": 1.0}, "node"))
    # what runs on an engine is tested elsewhere: here every job leaves its engine running
    outcome = gpu_group.failed_outcome(TrialJob(trial_id="t", config=baseline(), workload=WORKLOAD), REFUSED)
    done = replace(outcome, failure=None)
    for name in ("run_trial", "run_trace", "run_probe"):
        monkeypatch.setattr(gpu_group, name, _noting(name, done))


def _noting(name: str, done: Any) -> Any:
    def run(engine: Any, *_: object) -> Any:
        engine._log.append(f"{engine.kind} {name}")
        return done

    return run


def job(**changes: Any) -> TrialJob:
    return TrialJob(trial_id="t", config=config(), workload=WORKLOAD, **changes)


def test_one_switching_server_for_trials_and_traces() -> None:
    factory = Factory(switches=True)
    group = GpuGroup(factory, "group0", 1, "cpu")
    for asked in (job(), job(trace=TASK), job(probe_tokens=8), job()):
        group.run(asked)
    assert factory.log == [
        "made switching",
        "switching run_trial",
        "switching run_trace",
        "switching run_probe",
        "switching run_trial",
    ]
    group.stop()
    assert factory.log[-2:] == ["switching closed", "cleared"]


def test_a_fresh_launch_gets_a_server_of_its_own() -> None:
    factory = Factory(switches=True)
    group = GpuGroup(factory, "group0", 1, "cpu")
    outcomes = [group.run(asked) for asked in (job(), job(fresh=True), job())]
    assert [line for line in factory.log if line.startswith("made")] == [
        "made switching",
        "made plain",
        "made switching",
    ]
    assert factory.log.count("plain closed") == 1
    # the one before and its own
    assert 0.04 <= outcomes[1].ended_s <= outcomes[1].finished_at_unix_s - outcomes[1].started_at_unix_s
    assert outcomes[0].ended_s == outcomes[2].ended_s == 0.0


def test_without_switching_what_was_traced_does_not_serve_trials() -> None:
    factory = Factory(switches=False)
    group = GpuGroup(factory, "group0", 1, "cpu")
    for asked in (job(), job(trace=TASK), job(trace=TASK), job(), job()):
        group.run(asked)
    assert factory.log == [
        "made plain",
        "plain run_trial",
        "plain closed",
        "made recorder",
        "recorder run_trace",
        "recorder run_trace",
        "recorder closed",
        "made plain",
        "plain run_trial",
        "plain run_trial",
    ]


def test_a_trace_without_room_for_its_folder_is_the_machines_failure() -> None:
    factory = Factory(switches=True)
    factory.trace_folder = lambda grant: Path("/dev/null/traces")  # type: ignore[method-assign]
    outcome = GpuGroup(factory, "group0", 1, "cpu").run(job(trace=TASK))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.message) == (
        "machine",
        "[Errno 20] Not a directory: '/dev/null/traces'",
    )
    assert factory.log == ["made switching"]


def test_a_server_of_somebody_else_cannot_be_traced() -> None:
    outcome = GpuGroup(Foreign(), "group0", 1, "cpu").run(job(trace=TASK))
    assert outcome.failure is not None
    assert outcome.failure.kind == "bad_config"
    assert outcome.failure.message == (
        "a server that runs already cannot be traced: the plugin must be there when it starts"
    )
