"""The owner's side of the fork server: one per engine, started when first needed, ended with the engine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from actors.engines.command import ENTRY
from actors.engines.guarded_process import GuardedProcess, StartRequest

FORK_SERVER = Path(__file__).with_name("fork_server.py")


class ForkServer:
    """An interpreter that has imported SGLang and forks servers. `start` is a `Starter`.

    `environment` holds what SGLang reads while it is imported. `scratch` is this object's to remove, with whatever its
    servers have in it: when the owner is killed, so are the guards of forked servers, before they could clear up.
    After a failed start use `log` to find out why.
    """

    def __init__(self, python: str, environment: Mapping[str, str], log: Path, owner: str, scratch: Path) -> None:
        self.scratch = scratch
        self._socket = self.scratch / "fork"
        self.log = log
        log.unlink(missing_ok=True)
        self.process = GuardedProcess.start(
            [python, str(FORK_SERVER), str(self._socket)],
            environment={**environment, "TMPDIR": str(self.scratch)},
            log=log,
            status=log.with_suffix(".exit.json"),
            owner=owner,
            scratch=self.scratch,
            grace_s=0.1,
        )

    def wait_until_ready(self, timeout_s: float, given_up: Callable[[], bool]) -> bool:
        """True once it listens; false when it has died, time is over or `given_up` is true."""
        deadline = time.monotonic() + timeout_s
        while not self._socket.exists():
            if not self.process.alive or time.monotonic() > deadline or given_up():
                return False
            time.sleep(0.05)
        return True

    def start(self, request: StartRequest, owner_pipe: int) -> bytes:
        """Have a server forked under a guard; returns the guard's line. OSError when nobody listens any more."""
        entry = (request.command[0], *ENTRY)
        content = {
            "args": request.command[len(entry) :],
            "environment": dict(request.environment),
            "log": str(request.log),
            "status": str(request.status),
            "scratch": str(request.scratch or ""),
            "grace_s": request.grace_s,
        }
        answer, answer_end = os.pipe()
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self._socket))
                socket.send_fds(connection, [json.dumps(content).encode() + b"\n"], [owner_pipe, answer_end])
                os.close(answer_end)
                answer_end = -1
                with os.fdopen(os.dup(answer), "rb") as line:
                    return line.readline()
        finally:
            os.close(answer)
            if answer_end >= 0:
                os.close(answer_end)

    def close(self) -> None:
        """End it with everything it forked. Idempotent."""
        self.process.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
