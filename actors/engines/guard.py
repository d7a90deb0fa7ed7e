"""The process guard: starts one server and sees to it that nothing of it outlives its owner.

    python -S -E guard.py GRACE_S LOG STATUS SCRATCH -- COMMAND...

Standard input is the read end of a pipe whose write end only the owner holds. The guard leaves the owner's process
tree (double fork, own session), so that whatever ends the owner does not end the guard; becomes a subreaper, so that
every process the server starts stays its descendant whatever sessions they make; and starts the server in a session of
its own, which the kernel kills should the guard itself be killed. When the pipe closes or the server exits, the guard
ends all descendants, removes the shared memory files they had mapped and the folder SCRATCH (empty: none), and leaves.

On standard output it says, in one line of JSON, which processes it made: `guard` and `server`, each `[pid, start]`.
STATUS receives, when the server has exited, one JSON object: `exit_code`, `signal` (one of them null) and `asked`
(true when the owner let go first). The file is renamed into place, so a reader sees all of it or nothing; nothing it is
where the disk takes no more.

Uses the standard library only and is also importable: the owner's side shares its reading of /proc, and the fork
server stands guard over servers that it forks instead of executing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHARED_MEMORY_PREFIXES = ("sglang_", "sgl_shm", "multi_tokenizer_args_")
"""Files in shared memory that SGLang leaves, even after a clean stop (listed in its utils/stale_shm_cleanup.py)."""

SHARED_MEMORY = "/dev/shm/"  # noqa: S108

MAPS_EVERY_S = 1.0, 15.0
"""How often the mapped files are noted, at first and at last, for a server that dies without warning."""

ProcessId = tuple[int, int]
"""(pid, start time in clock ticks since boot): never equal for two processes of one boot."""


def read_stat(pid: int) -> tuple[str, int, int] | None:
    """(state, parent pid, start time) of a process from /proc, None when there is none. Zombies have state `Z`."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return fields[0], int(fields[1]), int(fields[19])


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - half the time of iterdir


def is_alive(process: ProcessId) -> bool:
    """True while this very process runs; false for a zombie, and for a stranger that got the same pid."""
    stat = read_stat(process[0])
    return stat is not None and stat[0] not in "ZX" and stat[2] == process[1]


def send_signal(process: ProcessId, signal_number: int) -> None:
    """Signal this very process, or nobody: the descriptor is taken first, then the identity is checked."""
    try:
        descriptor = os.pidfd_open(process[0])
    except OSError:
        return
    try:
        if is_alive(process):
            signal.pidfd_send_signal(descriptor, signal_number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(descriptor)


def descendants(root: int) -> list[ProcessId]:
    """Every living process below `root`, in no particular order. Zombies are left out but walked through."""
    children: dict[int, list[int]] = {}
    found: dict[int, ProcessId] = {}
    for pid in all_pids():
        stat = read_stat(pid)
        if stat is not None:
            children.setdefault(stat[1], []).append(pid)
            if stat[0] not in "ZX":
                found[pid] = (pid, stat[2])
    result, pending = [], [root]
    while pending:
        below = children.get(pending.pop(), [])
        pending += below
        result += [found[pid] for pid in below if pid in found]
    return result


def mapped_shared_memory(processes: list[ProcessId]) -> set[str]:
    """Paths of SGLang's own shared memory files that these processes have mapped."""
    paths: set[str] = set()
    for pid, _ in processes:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            _, shm, name = line.partition(SHARED_MEMORY)
            if shm and name.startswith(SHARED_MEMORY_PREFIXES) and "/" not in name:
                paths.add(SHARED_MEMORY + name.removesuffix(" (deleted)"))
    return paths


def _reap() -> None:
    """Collect zombies that were handed to this subreaper, the server excepted only once it has been collected."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _prepare_server(log: str) -> None:
    """In the server's process: own session, death with the guard, plain signals, output to the log."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


def _execute(command: list[str]) -> None:
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as problem:
        os.write(2, f"cannot start {command[0]}: {problem.strerror}\n".encode())
        os._exit(127)


def _write_status(path: str, wait_status: int, *, asked: bool) -> None:
    code = os.waitstatus_to_exitcode(wait_status)
    content = {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None, "asked": asked}
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a full disk: ending what runs matters more than how it ended
        Path(temporary).write_text(json.dumps(content), encoding="ascii")
        os.replace(temporary, path)  # noqa: PTH105


class _Guard:
    """Waits for the owner's end or the server's, then clears up. One per process; single-threaded."""

    def __init__(self, server: int, grace_s: float, status: str, scratch: str) -> None:
        self._server, self._grace_s, self._status, self._scratch = server, grace_s, status, scratch
        self._asked = False
        self._shared_memory: set[str] = set()

    def run(self) -> None:
        try:
            self._wait_for_an_end()
            self._note_shared_memory()
            if self._asked:
                self._stop_server()
        finally:  # whatever befell the guard (no descriptor left, say)
            self._kill_everything()
            for path in self._shared_memory:
                with contextlib.suppress(OSError):
                    Path(path).unlink(missing_ok=True)
            if self._scratch:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _wait_for_an_end(self) -> None:
        poll = select.poll()
        poll.register(0, select.POLLHUP | select.POLLIN)
        poll.register(os.pidfd_open(self._server), select.POLLIN)
        pause_s, longest_s = MAPS_EVERY_S
        while not (ready := [descriptor for descriptor, _ in poll.poll(pause_s * 1000)]):
            self._note_shared_memory()
            pause_s = min(pause_s * 1.3, longest_s)
        self._asked = 0 in ready

    def _note_shared_memory(self) -> None:
        self._shared_memory |= mapped_shared_memory(descendants(os.getpid()))

    def _stop_server(self) -> None:
        """SIGTERM, then wait for the server alone: with it gone nothing is left to be polite to."""
        os.kill(self._server, signal.SIGTERM)  # our child and not yet collected, so the pid is still its own
        deadline = time.monotonic() + self._grace_s
        while not self._server_ended() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _server_ended(self) -> bool:
        """Collect the server's exit status, once; true when it has ended."""
        if self._server:
            pid, wait_status = os.waitpid(self._server, os.WNOHANG)
            if pid == 0:
                return False
            self._server = 0
            _write_status(self._status, wait_status, asked=self._asked)
        return True

    def _kill_everything(self) -> None:
        while left := descendants(os.getpid()):
            for process in left:
                send_signal(process, signal.SIGKILL)
            time.sleep(0.02)
            if self._server_ended():
                _reap()
        self._server_ended()


def stand_guard(*, grace_s: float, log: str, status: str, scratch: str, run_server: Callable[[], None]) -> None:
    """Never returns in the calling process; the guard returns when nothing is left. See the module's promise.

    `run_server` is called in the server's process and must not return.
    """
    if os.fork():
        os._exit(0)  # the guard is now nobody's child, so a kill of the owner's children does not reach it
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray's workers start their children with SIGINT blocked
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    server = os.fork()
    if server == 0:
        _prepare_server(log)
        run_server()
        os._exit(70)
    made = {
        name: [pid, (read_stat(pid) or ("", 0, 0))[2]] for name, pid in (("guard", os.getpid()), ("server", server))
    }
    os.write(1, (json.dumps(made) + "\n").encode())
    os.close(1)
    os.close(2)
    _Guard(server, grace_s, status, scratch).run()


def main(arguments: list[str]) -> None:
    grace_s, log, status, scratch = arguments[:4]
    command = arguments[5:]
    stand_guard(grace_s=float(grace_s), log=log, status=status, scratch=scratch, run_server=lambda: _execute(command))


if __name__ == "__main__":
    main(sys.argv[1:])
