"""The lease: one live driver per study. A lock on the folder, and a heartbeat in a storage that others share."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from search_spaces.errors import EnvironmentProblem, InputError

logger = logging.getLogger(__name__)

HEARTBEAT_S = 20.0
EXPIRES_S = 120.0
"""A driver on another machine is held to be dead after so long without a heartbeat."""

LEASE = "specsweep.lease"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """One driver process. `start_ticks` (since boot, from /proc) tells it from a later process with the same pid."""

    host: str
    pid: int
    start_ticks: int
    started_at_unix_s: float

    @classmethod
    def this_process(cls) -> Owner:
        pid = os.getpid()
        return cls(
            host=socket.gethostname(), pid=pid, start_ticks=_start_ticks(pid) or 0, started_at_unix_s=time.time()
        )

    @property
    def is_dead(self) -> bool:
        """True when it ran on this machine and does no more; False when it lives or nobody here can tell."""
        return self.host == socket.gethostname() and _start_ticks(self.pid) != self.start_ticks

    def __str__(self) -> str:
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started_at_unix_s))
        return f"process {self.pid} on {self.host}, started {started}"


@contextlib.contextmanager
def hold_folder(lock_path: Path) -> Iterator[Owner]:
    """Hold the study's folder while in the context.

    The kernel releases the lock when the process ends, however it ends, so a successor takes over at once. The folder
    is made when it is missing. InputError, naming the owner, while another live driver holds it, and when the folder
    cannot be written.
    """
    owner = Owner.this_process()
    with _locked(lock_path) as file:
        _note(file, json.dumps(asdict(owner)).encode())
        try:
            yield owner
        finally:
            _note(file, b"")


def _locked(lock_path: Path) -> BinaryIO:
    try:
        while True:
            lock_path.parent.mkdir(parents=True, exist_ok=True)
            file = lock_path.open("a+b")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock_path, file):
                    return file
            except BlockingIOError:
                file.seek(0)
                other = _read_owner(file.read()) or "another driver"
                file.close()
                raise InputError(f"study folder {lock_path.parent}: in use by {other}") from None
            file.close()
    except OSError as error:
        raise InputError(f"study folder {lock_path.parent}: cannot be written: {error.strerror or error}") from None


def _is_at(path: Path, file: BinaryIO) -> bool:
    # a study that could not begin is taken away, lock and all, by the driver that held it
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _note(file: BinaryIO, content: bytes) -> None:
    # who holds the lock is news for others; the lock itself is the kernel's
    with contextlib.suppress(OSError):
        file.truncate(0)
        file.write(content)
        file.flush()


class Attributes(Protocol):
    """The part of a study that the storage lease needs."""

    name: str

    def attr(self, name: str) -> Any: ...
    def set_attr(self, name: str, value: Any) -> None: ...


class StorageLease:
    """A lease in the study's own attributes, for storages that drivers on several machines can reach.

    `beat` is to be called often; it looks and writes every `HEARTBEAT_S`. A driver that was held to be dead may write
    over its successor's lease once, as the storage keeps it waiting: each looks before it writes, so one of them ends.
    """

    def __init__(self, study: Attributes, owner: Owner, clock: Callable[[], float] = time.time) -> None:
        self._study, self._owner, self._clock = study, owner, clock
        self._beaten_at_s = self._tried_at_s = float("-inf")

    def take(self) -> None:
        """InputError while another driver's heartbeat is fresh and its process is not known to be dead."""
        there = self._study.attr(LEASE)
        if there:
            other, age_s = Owner(**there["owner"]), self._clock() - there["beaten_at_unix_s"]
            if other != self._owner and not other.is_dead and age_s < EXPIRES_S:
                raise InputError(
                    f"study {self._study.name!r}: in use by {other} (heartbeat {age_s:.0f} s ago); "
                    f"it is free {EXPIRES_S:.0f} s after its last heartbeat"
                )
        self._write()

    def beat(self) -> None:
        """A beat that the storage does not take is made up for by the next one. EnvironmentProblem once the lease may
        have lapsed and the storage still does not answer, and when another driver has taken the study over."""
        if self._clock() - self._tried_at_s < HEARTBEAT_S:
            return
        self._tried_at_s = self._clock()
        try:
            there = self._study.attr(LEASE)
            if self._is_mine(there):
                self._write()
                return
        except EnvironmentProblem as problem:
            # the storage was asked again and again meanwhile
            if self._clock() - self._beaten_at_s >= EXPIRES_S:
                raise
            logger.warning("a heartbeat was missed: %s", problem)
            return
        other = Owner(**there["owner"]) if there else "another driver, which has ended"
        raise EnvironmentProblem(
            f"search.storage: study {self._study.name!r}: taken over by {other}, as this driver's heartbeat was not "
            f"seen for {EXPIRES_S:.0f} s"
        )

    def _write(self) -> None:
        # the time before it is written, however long that takes: the others see no later one
        now = self._tried_at_s = self._clock()
        self._study.set_attr(LEASE, {"owner": asdict(self._owner), "beaten_at_unix_s": now})
        self._beaten_at_s = now

    def _is_mine(self, there: Any) -> bool:
        return bool(there) and Owner(**there["owner"]) == self._owner

    def release(self) -> None:
        """Free the study, unless another driver has taken it over meanwhile. It lapses when the storage is gone."""
        try:
            there = self._study.attr(LEASE)
            if self._is_mine(there):
                self._study.set_attr(LEASE, None)
        except EnvironmentProblem as problem:
            logger.warning("the lease was not given back: %s", problem)


def folder_owner(lock_path: Path) -> Owner | None:
    """The live driver of a study, for `status`; None when none runs. Takes no lock for longer than the look."""
    try:
        with lock_path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read_owner(file.read())
    except OSError:
        return None
    return None


def _read_owner(content: bytes) -> Owner | None:
    try:
        return Owner(**json.loads(content))
    except (ValueError, TypeError):
        return None


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # the command name, in brackets, may hold spaces and brackets itself
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
