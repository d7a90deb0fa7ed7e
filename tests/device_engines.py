"""An engine for tests of actors: starts a sleeping server under the real guard, and says what its environment is."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from doubles.tracing_server import Traceable
from trial_builders import launch

from actors.engines.guarded_process import GuardedProcess, sweep_leftovers
from actors.gpu_group import DeviceGrant
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig

SERVER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"], start_new_session=True)
time.sleep(300)
"""
"""Has a child in a session of its own, which nothing but the guard will find."""


class SleepingEngine:
    """`apply` starts a server and holds the trial for `hold_s`; every measurement then fails, which ends the trial."""

    def __init__(self, folder: Path, owner: str, grant: DeviceGrant, hold_s: float) -> None:
        sweep_leftovers(owner)
        self._folder, self._owner, self._grant, self._hold_s = folder, owner, grant, hold_s
        self._process: GuardedProcess | None = None

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        log = self._folder / f"{self._grant.slot}.log"
        self._process = GuardedProcess.start(
            [sys.executable, "-S", "-c", SERVER],
            environment=dict(os.environ),
            log=log,
            status=log.with_suffix(".json"),
            owner=self._owner,
            grace_s=1.0,
        )
        pids = f"{os.getpid()} {self._process.pid} {self._process.guard_pid}"
        (self._folder / f"{self._grant.slot}.pids").write_text(pids)
        end = time.monotonic() + self._hold_s
        while time.monotonic() < end and self._process.alive:
            time.sleep(0.02)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
        message = f"ids {','.join(self._grant.device_ids)} visible {visible} alive {self._process.alive}"
        return Failure(phase="ready", kind="crash", message=message)

    @property
    def base_url(self) -> str:
        raise RuntimeError(launch().command[0])

    def failure_now(self) -> Failure | None:
        return None

    def log_tail(self, max_bytes: int = 65536) -> str:
        return "log"

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


@dataclass(frozen=True, kw_only=True)
class SleepingFactory:
    folder: Path
    sweep: str
    hold_s: float = 0.0

    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> SleepingEngine:
        return SleepingEngine(self.folder, self.owner(grant.slot), grant, self.hold_s)

    def owner(self, slot: str) -> str:
        return f"{self.sweep}/{slot}"

    def clear(self, grant: DeviceGrant) -> None:
        (self.folder / f"{grant.slot}.cleared").touch()

    def last_log(self, grant: DeviceGrant) -> str:
        return f"the last words of {grant.slot}"


@dataclass(frozen=True, kw_only=True)
class TraceableFactory:
    """Groups whose server can be traced and nothing else; `folder` is for their traces."""

    folder: Path
    switches: bool = True

    def __call__(self, grant: DeviceGrant, *, fresh: bool = False) -> Traceable:
        raise AssertionError("only traced here")

    def tracer(self, grant: DeviceGrant) -> Traceable:
        return Traceable().__enter__()

    def trace_folder(self, grant: DeviceGrant) -> Path:
        return self.folder / grant.slot

    def clear(self, grant: DeviceGrant) -> None:
        """Nothing of it lies anywhere."""

    def last_log(self, grant: DeviceGrant) -> str:
        return ""
