"""The owner's side of the process guard: start a server, ask about it, and end it with everything it started.

Ownership: the object that `start` returns holds the only write end of the guard's pipe. `close` lets go of it; so does
the owner's death, however it dies. Should the guard itself be killed, `sweep_leftovers` finds what remained by the
marker in its environment.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from actors.engines import guard
from actors.engines.guard import ProcessId

LOG = logging.getLogger(__name__)

MARKER = "SPECSWEEP_ID"
"""Environment variable that names the owner of a process: `SWEEP_ID/SLOT`."""

SIGKILL_MARGIN_S = 20.0
"""What the guard may take beyond its grace before it is held to be stuck."""


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """One server to start under a guard. `environment` is whole, the marker included; output is appended to `log`.

    `scratch` is a folder that the guard removes when nothing is left.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    status: Path
    scratch: Path | None
    grace_s: float


Starter = Callable[[StartRequest, int], bytes]
"""Starts a guard whose standard input is the given descriptor; returns the line that the guard says."""


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """How a server ended. `exit_code` and `signal` are both None when nobody saw it (the guard was killed)."""

    exit_code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"ended by signal {self.signal} ({signal.Signals(self.signal).name})"
        return "ended with an unknown status" if self.exit_code is None else f"exit code {self.exit_code}"


class GuardedProcess:
    """One server under a guard. Made by `start`; `close` may be called from any thread, any number of times."""

    def __init__(
        self,
        *,
        guard_id: ProcessId,
        server_id: ProcessId,
        pipe: int,
        request: StartRequest,
        owner: str,
        spare: frozenset[ProcessId],
    ) -> None:
        self._guard, self._server = guard_id, server_id
        self._pipe: int | None = pipe
        self._request, self._owner, self._spare = request, owner, spare

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        status: Path,
        owner: str,
        grace_s: float,
        scratch: Path | None = None,
        starter: Starter | None = None,
        spare: frozenset[ProcessId] = frozenset(),
    ) -> GuardedProcess:
        """Start `command` under a guard; returns as soon as it has been forked (it may fail to exec: see its status).

        `environment` is the whole environment of the server; the marker with `owner` is added. Output is appended to
        `log`. After SIGTERM the server has `grace_s` before it is killed. RuntimeError when no guard could be started.
        `scratch` is a folder that is removed at the end, even when the owner cannot do it any more.
        `starter` is another way of starting the same; `spare` are processes of this owner that `close` leaves alone.
        """
        status.unlink(missing_ok=True)
        read_end, write_end = os.pipe()
        request = StartRequest(
            command=tuple(command),
            environment={**environment, MARKER: owner},
            log=log,
            status=status,
            scratch=scratch,
            grace_s=grace_s,
        )
        try:
            made = json.loads((starter or run_guard)(request, read_end))
        except (OSError, ValueError) as problem:
            os.close(write_end)
            raise RuntimeError(f"the process guard did not start: {problem}") from problem
        finally:
            os.close(read_end)
        guard_id, server_id = tuple(made["guard"]), tuple(made["server"])
        return cls(guard_id=guard_id, server_id=server_id, pipe=write_end, request=request, owner=owner, spare=spare)

    @property
    def identities(self) -> frozenset[ProcessId]:
        """Of the guard and of the server."""
        return frozenset({self._guard, self._server})

    @property
    def pid(self) -> int:
        return self._server[0]

    @property
    def guard_pid(self) -> int:
        return self._guard[0]

    @property
    def alive(self) -> bool:
        """True while the server itself runs, whatever has become of its children."""
        return guard.is_alive(self._server)

    def exit_status(self) -> ExitStatus | None:
        """How the server ended, None while it runs. Waits for the guard's word, for at most two seconds."""
        deadline = time.monotonic() + 2.0
        while not self.alive:
            try:
                seen = json.loads(self._request.status.read_text(encoding="ascii"))
                return ExitStatus(exit_code=seen["exit_code"], signal=seen["signal"])
            except FileNotFoundError:
                if time.monotonic() > deadline or not guard.is_alive(self._guard):
                    return ExitStatus(exit_code=None, signal=None)
            time.sleep(0.01)
        return None

    def close(self) -> None:
        """End the server and all its descendants; returns when none is left. RuntimeError naming those that stay."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)
        if not _wait_for_end(self._guard, self._request.grace_s + SIGKILL_MARGIN_S):
            LOG.warning("process guard %d is stuck and will be killed", self.guard_pid)
            guard.send_signal(self._guard, signal.SIGKILL)
        sweep_leftovers(self._owner, spare=self._spare)


def run_guard(request: StartRequest, owner_pipe: int) -> bytes:
    """The usual `Starter`: a small interpreter that runs `guard.py`, which executes the command."""
    words = [sys.executable, "-S", "-E", guard.__file__, str(request.grace_s), str(request.log), str(request.status)]
    words.append(str(request.scratch or ""))
    launcher = subprocess.Popen(
        [*words, "--", *request.command],
        stdin=owner_pipe,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=request.environment,
    )
    output, errors = launcher.communicate()
    if errors:
        LOG.warning("process guard: %s", errors.decode(errors="replace").strip())
    return output


def _wait_for_end(process: ProcessId, timeout_s: float) -> bool:
    """True when the process has ended within the time. It need not be a child of ours."""
    try:
        descriptor = os.pidfd_open(process[0])
    except OSError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not guard.is_alive(process) or bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def find_leftovers(owner: str) -> list[ProcessId]:
    """Living processes of this machine whose environment says that they belong to `owner`.

    An owner that ends in `/` stands for all its slots. Processes of other users cannot be read and are not ours.
    """
    wanted = f"{MARKER}={owner}".encode()
    found = []
    for pid in guard.all_pids():
        stat = guard.read_stat(pid)
        if stat is None or stat[0] in "ZX" or pid == os.getpid():
            continue
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(value == wanted or (wanted.endswith(b"/") and value.startswith(wanted)) for value in variables):
            found.append((pid, stat[2]))
    return found


def sweep_leftovers(owner: str, *, spare: frozenset[ProcessId] = frozenset(), timeout_s: float = 10.0) -> int:
    """Kill what is left of `owner` (see `find_leftovers`), but `spare`; returns how many processes that were.

    Only for owners known to be gone: a live server of this owner would be killed too. RuntimeError when something
    survives SIGKILL for `timeout_s`.
    """
    killed: set[ProcessId] = set()
    deadline = time.monotonic() + timeout_s
    while left := [process for process in find_leftovers(owner) if process not in spare]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes of {owner} survive SIGKILL: {sorted(pid for pid, _ in left)}")
        shared_memory = guard.mapped_shared_memory(left)
        for process in left:
            guard.send_signal(process, signal.SIGKILL)
        for path in shared_memory:
            Path(path).unlink(missing_ok=True)
        killed.update(left)
        time.sleep(0.02)
    return len(killed)
