"""Leak tests with real processes: however owner, guard or server end, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.engines import guard
from actors.engines.guarded_process import MARKER, ExitStatus, GuardedProcess, find_leftovers, sweep_leftovers

# A server with a child in its own group and a grandchild in a session of its own, reparented to whoever adopts it.
SERVER = """
import os, subprocess, sys, time
sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(300)"]
subprocess.Popen(sleeper)
subprocess.Popen(sleeper, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, sleeper)
    os._exit(0)
print("up", flush=True)
time.sleep(300)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER
PROCESSES = 4  # the server and three below it

# Owns a server, says so, then ends as its argument tells it to.
OWNER = """
import json, os, signal, sys, time
from pathlib import Path
from actors.engines.guarded_process import GuardedProcess
folder, owner, server, end = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
process = GuardedProcess.start(
    [sys.executable, "-S", "-c", server], environment=dict(os.environ), log=folder / "log",
    status=folder / "status.json", owner=owner, grace_s=1.0, scratch=folder / "scratch")
print(json.dumps([process.guard_pid, process.pid]), flush=True)
sys.stdin.readline()
if end == "exit":
    os._exit(3)
time.sleep(300)
"""


@pytest.fixture
def owner() -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex}/0"
    yield name
    sweep_leftovers(name)


def start(owner: str, folder: Path, source: str = SERVER, grace_s: float = 1.0) -> GuardedProcess:
    return GuardedProcess.start(
        [sys.executable, "-S", "-c", source],
        environment=dict(os.environ),
        log=folder / "log",
        status=folder / "status.json",
        owner=owner,
        grace_s=grace_s,
    )


def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def wait_until_up(owner: str, log: Path) -> None:
    assert eventually(lambda: log.exists() and "up" in log.read_text())
    assert eventually(lambda: len(find_leftovers(owner)) == PROCESSES + 1)  # the guard carries the marker as well


def test_close_leaves_nothing(owner: str, tmp_path: Path) -> None:
    process = start(owner, tmp_path)
    wait_until_up(owner, tmp_path / "log")
    assert process.alive
    assert process.exit_status() is None
    process.close()
    assert find_leftovers(owner) == []
    assert process.exit_status() == ExitStatus(exit_code=None, signal=signal.SIGTERM)
    process.close()


def test_close_kills_what_ignores_sigterm_after_the_grace(owner: str, tmp_path: Path) -> None:
    process = start(owner, tmp_path, STUBBORN, grace_s=0.3)
    wait_until_up(owner, tmp_path / "log")
    started = time.monotonic()
    process.close()
    assert time.monotonic() - started > 0.3
    assert find_leftovers(owner) == []
    assert process.exit_status() == ExitStatus(exit_code=None, signal=signal.SIGKILL)


@pytest.mark.parametrize("end", ["exit", "kill"])
@pytest.mark.parametrize("server", [SERVER, STUBBORN], ids=["polite", "stubborn"])
def test_the_owners_death_leaves_nothing(owner: str, tmp_path: Path, end: str, server: str) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "socket").mkdir(parents=True)
    words = [sys.executable, "-c", OWNER, str(tmp_path), owner, server, end]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert len(json.loads(child.stdout.readline())) == 2
        wait_until_up(owner, tmp_path / "log")
        if end == "kill":
            child.kill()
        else:
            child.stdin.write("\n")
            child.stdin.flush()
        child.wait(10)
        assert eventually(lambda: find_leftovers(owner) == [])
        assert not scratch.exists()


def test_a_status_that_cannot_be_written_keeps_the_guard_from_nothing(owner: str, tmp_path: Path) -> None:
    """The owner only lets go, as one that was killed does: nobody but the guard clears up."""
    scratch, gone = tmp_path / "scratch", tmp_path / "gone"
    scratch.mkdir()
    gone.mkdir()
    process = GuardedProcess.start(
        [sys.executable, "-S", "-c", SERVER],
        environment=dict(os.environ),
        log=tmp_path / "log",
        status=gone / "status.json",
        owner=owner,
        grace_s=1.0,
        scratch=scratch,
    )
    wait_until_up(owner, tmp_path / "log")
    gone.rmdir()
    assert process._pipe is not None
    os.close(process._pipe)
    process._pipe = None
    assert eventually(lambda: find_leftovers(owner) == [])
    assert not scratch.exists()
    assert process.exit_status() == ExitStatus(exit_code=None, signal=None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_the_servers_death_leaves_nothing_and_is_known(owner: str, tmp_path: Path, number: int) -> None:
    process = start(owner, tmp_path)
    wait_until_up(owner, tmp_path / "log")
    os.kill(process.pid, number)
    assert eventually(lambda: not process.alive)
    assert process.exit_status() == ExitStatus(exit_code=None, signal=number)
    assert eventually(lambda: find_leftovers(owner) == [])
    process.close()


def test_the_guards_death_ends_the_server_and_close_mends_the_rest(owner: str, tmp_path: Path) -> None:
    process = start(owner, tmp_path)
    wait_until_up(owner, tmp_path / "log")
    os.kill(process.guard_pid, signal.SIGKILL)
    assert eventually(lambda: not process.alive)
    assert process.exit_status() == ExitStatus(exit_code=None, signal=None)
    assert len(find_leftovers(owner)) == PROCESSES - 1
    process.close()
    assert find_leftovers(owner) == []


def test_a_later_sweep_mends_after_guard_and_owner_are_both_killed(owner: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", OWNER, str(tmp_path), owner, SERVER, "wait"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        guard_pid, server_pid = json.loads(child.stdout.readline())
        wait_until_up(owner, tmp_path / "log")
        os.kill(guard_pid, signal.SIGKILL)
        child.kill()
    assert eventually(lambda: server_pid not in [pid for pid, _ in find_leftovers(owner)])
    assert sweep_leftovers(owner) == PROCESSES - 1
    assert find_leftovers(owner) == []


def test_a_sweep_of_all_slots_spares_other_sweeps(tmp_path: Path) -> None:
    sweep = f"test-{uuid.uuid4().hex}"
    sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(300)"]
    names = [f"{sweep}/0", f"{sweep}/1", f"{sweep}x/0"]
    children = [subprocess.Popen(sleeper, env={**os.environ, MARKER: name}) for name in names]
    try:
        assert eventually(lambda: len(find_leftovers(f"{sweep}/")) == 2)
        assert sweep_leftovers(f"{sweep}/") == 2
        assert [child.wait(5) for child in children[:2]] == [-signal.SIGKILL, -signal.SIGKILL]
        assert children[2].poll() is None
    finally:
        children[2].kill()
        children[2].wait()


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("raise SystemExit(7)", ExitStatus(exit_code=7, signal=None)),
        ("pass", ExitStatus(exit_code=0, signal=None)),
    ],
)
def test_exit_codes_are_kept(owner: str, tmp_path: Path, source: str, status: ExitStatus) -> None:
    process = start(owner, tmp_path, source)
    assert eventually(lambda: not process.alive)
    assert process.exit_status() == status
    process.close()


def test_a_missing_program_ends_with_127_and_says_so_in_the_log(owner: str, tmp_path: Path) -> None:
    process = GuardedProcess.start(
        [str(tmp_path / "nothing")],
        environment=dict(os.environ),
        log=tmp_path / "log",
        status=tmp_path / "status.json",
        owner=owner,
        grace_s=1,
    )
    assert eventually(lambda: not process.alive)
    assert process.exit_status() == ExitStatus(exit_code=127, signal=None)
    assert "cannot start" in (tmp_path / "log").read_text()
    process.close()


def test_a_stranger_with_the_same_pid_is_never_signalled() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"]) as child:
        stat = guard.read_stat(child.pid)
        assert stat is not None
        guard.send_signal((child.pid, stat[2] - 1), signal.SIGKILL)
        time.sleep(0.1)
        assert child.poll() is None
        guard.send_signal((child.pid, stat[2]), signal.SIGKILL)
        assert child.wait(5) == -signal.SIGKILL


def test_sglangs_shared_memory_files_are_removed_and_others_kept(owner: str, tmp_path: Path) -> None:
    ours, other = (f"/dev/shm/{prefix}{uuid.uuid4().hex}" for prefix in ("sglang_loads_", "stranger_"))
    source = f"""
import mmap, time
files = [open(name, "w+b") for name in ({ours!r}, {other!r})]
for f in files: f.truncate(4096)
maps = [mmap.mmap(f.fileno(), 4096) for f in files]
print("up", flush=True)
time.sleep(300)
"""
    process = start(owner, tmp_path, source)
    try:
        assert eventually(lambda: "up" in (tmp_path / "log").read_text())
        process.close()
        assert [Path(ours).exists(), Path(other).exists()] == [False, True]
    finally:
        Path(other).unlink()
