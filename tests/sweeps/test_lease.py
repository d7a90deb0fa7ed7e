"""One live driver per study: locks of real processes, and heartbeats where only the storage is shared."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.store import StudyFolder
from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.driver_log import driver_log
from sweeps.lease import EXPIRES_S, HEARTBEAT_S, LEASE, Owner, StorageLease, folder_owner, hold_folder
from sweeps.no_search import NoSearch
from sweeps.tally import DriverTime

HOLD = """
import sys, time
from pathlib import Path
from sweeps.lease import hold_folder
with hold_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_second_live_driver_is_refused_in_one_line_and_a_dead_ones_place_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert folder_owner(lock) is None
    with holder(lock) as process:
        with pytest.raises(InputError) as caught, hold_folder(lock):
            pass
        assert str(caught.value).startswith(f"study folder {tmp_path}: in use by process {process.pid} on ")
        assert "\n" not in str(caught.value)
        owner = folder_owner(lock)
        assert owner is not None
        assert (owner.pid, owner.is_dead) == (process.pid, False)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert owner.is_dead
        before = time.monotonic()
        with hold_folder(lock) as mine:
            assert mine.pid == os.getpid()
        assert time.monotonic() - before < 1
    assert folder_owner(lock) is None


def test_a_lock_whose_folder_was_taken_away_locks_nothing(tmp_path: Path) -> None:
    """Two drivers have it open; the first one's study cannot begin, and goes with its lock."""
    folder = tmp_path / "study"
    taken_away = []

    def flock(file: Any, how: int) -> None:
        if not taken_away:
            taken_away.append((folder / "lock").stat().st_ino)
            shutil.rmtree(folder)
        real(file, how)

    real = fcntl.flock
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        with hold_folder(folder / "lock"):
            patch.undo()
            owner = folder_owner(folder / "lock")
            assert owner is not None
            assert owner.pid == os.getpid()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot be written: File exists$"), hold_folder(tmp_path / "file/lock"):
        pass
    with (
        pytest.raises(InputError, match=r"driver\.log: cannot be written: "),
        driver_log(StudyFolder(tmp_path / "file")),
    ):
        pass


def test_a_reused_pid_is_another_process() -> None:
    me = Owner.this_process()
    assert not me.is_dead
    assert replace(me, start_ticks=me.start_ticks - 1).is_dead
    # nobody here can tell about another machine
    assert not replace(me, host="elsewhere", pid=1, start_ticks=0).is_dead


class Attributes:
    name = "s"

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.writes = 0

    def attr(self, name: str) -> Any:
        return self.kept.get(name)

    def set_attr(self, name: str, value: Any) -> None:
        self.kept[name] = value
        self.writes += 1


def test_a_fresh_heartbeat_elsewhere_keeps_others_out_until_it_lapses() -> None:
    study, now = Attributes(), [1000.0]
    elsewhere = replace(Owner.this_process(), host="elsewhere")
    StorageLease(study, elsewhere, lambda: now[0]).take()
    mine = StorageLease(study, Owner.this_process(), lambda: now[0])
    now[0] += EXPIRES_S - 1
    with pytest.raises(InputError, match=r"study 's': in use by process \d+ on elsewhere.*\(heartbeat 119 s ago\)"):
        mine.take()
    now[0] += 1
    mine.take()
    assert study.kept[LEASE]["owner"] == asdict(Owner.this_process()) | {
        "started_at_unix_s": study.kept[LEASE]["owner"]["started_at_unix_s"]
    }


def test_a_dead_process_of_this_machine_is_succeeded_at_once() -> None:
    study = Attributes()
    dead = replace(Owner.this_process(), pid=2**22 + 1)
    StorageLease(study, dead).take()
    StorageLease(study, Owner.this_process()).take()
    assert study.kept[LEASE]["owner"]["pid"] == os.getpid()


def test_heartbeats_are_written_seldom_and_a_release_frees() -> None:
    study, now = Attributes(), [0.0]
    lease = StorageLease(study, Owner.this_process(), lambda: now[0])
    lease.take()
    for _ in range(100):
        now[0] += 1.0
        lease.beat()
    assert study.writes == 1 + 5
    lease.release()
    other = StorageLease(study, replace(Owner.this_process(), host="elsewhere"), lambda: now[0])
    other.take()
    # what another driver holds by now is not freed in its place
    lease.release()
    assert study.kept[LEASE]["owner"]["host"] == "elsewhere"


class Unreachable(Attributes):
    """A storage that may be gone for a while."""

    gone = False

    def attr(self, name: str) -> Any:
        self._check()
        return super().attr(name)

    def set_attr(self, name: str, value: Any) -> None:
        self._check()
        super().set_attr(name, value)

    def _check(self) -> None:
        if self.gone:
            raise EnvironmentProblem("search.storage: gone")


def test_a_missed_heartbeat_is_made_up_for_and_a_lapsed_lease_ends_the_driver() -> None:
    study, now = Unreachable(), [0.0]
    lease = StorageLease(study, Owner.this_process(), lambda: now[0])
    study.gone = True
    with pytest.raises(EnvironmentProblem, match="gone"):
        lease.take()
    study.gone = False
    now[0] += HEARTBEAT_S
    lease.take()
    study.gone = True
    while now[0] + HEARTBEAT_S < HEARTBEAT_S + EXPIRES_S:
        now[0] += HEARTBEAT_S
        lease.beat()
    study.gone = False
    now[0] += HEARTBEAT_S - 1
    lease.beat()
    assert study.kept[LEASE]["beaten_at_unix_s"] == HEARTBEAT_S
    now[0] += 1
    lease.beat()
    assert study.kept[LEASE]["beaten_at_unix_s"] == now[0]
    study.gone = True
    now[0] += EXPIRES_S
    with pytest.raises(EnvironmentProblem, match="gone"):
        lease.beat()
    lease.release()
    DriverTime(NoSearch("s", study_of(study))).keep()


class Waiting(Attributes):
    """A storage that keeps its callers waiting: `at_write` happens before the next write lands."""

    at_write: Callable[[], None] | None = None

    def set_attr(self, name: str, value: Any) -> None:
        happens, self.at_write = self.at_write, None
        if happens is not None:
            happens()
        super().set_attr(name, value)


def test_a_driver_that_was_succeeded_ends_and_leaves_the_lease() -> None:
    study, now = Unreachable(), [0.0]
    late = StorageLease(study, replace(Owner.this_process(), host="elsewhere"), lambda: now[0])
    late.take()
    study.gone = True
    now[0] = EXPIRES_S - 1
    late.beat()
    study.gone = False
    now[0] = EXPIRES_S
    successor = StorageLease(study, Owner.this_process(), lambda: now[0])
    successor.take()
    held = study.kept[LEASE]
    now[0] = EXPIRES_S + HEARTBEAT_S - 1
    with pytest.raises(EnvironmentProblem, match=rf"study 's': taken over by process {os.getpid()} on "):
        late.beat()
    assert study.kept[LEASE] == held
    successor.release()
    now[0] += HEARTBEAT_S
    with pytest.raises(EnvironmentProblem, match=r"taken over by another driver, which has ended"):
        late.beat()


def test_a_write_that_lands_after_the_lease_lapsed_ends_one_of_the_two() -> None:
    study, now = Waiting(), [0.0]
    late = StorageLease(study, replace(Owner.this_process(), host="elsewhere"), lambda: now[0])
    successor = StorageLease(study, Owner.this_process(), lambda: now[0])
    late.take()

    def lapse() -> None:
        now[0] = EXPIRES_S
        successor.take()

    study.at_write = lapse
    now[0] = EXPIRES_S - 6
    late.beat()
    now[0] = EXPIRES_S + HEARTBEAT_S
    with pytest.raises(EnvironmentProblem, match=r"taken over by process \d+ on elsewhere"):
        successor.beat()
    late.beat()


def test_a_lease_that_lapses_while_the_storage_is_asked_again_ends_the_driver() -> None:
    study, now = Unreachable(), [0.0]

    class Slow(Unreachable):
        def attr(self, name: str) -> Any:
            now[0] += 24.0
            return study.attr(name)

        set_attr = study.set_attr

    lease = StorageLease(Slow(), Owner.this_process(), lambda: now[0])
    lease.take()
    study.gone = True
    now[0] = EXPIRES_S + 10
    with pytest.raises(EnvironmentProblem, match="gone"):
        lease.beat()


BEATS = st.tuples(st.sampled_from((1.0, HEARTBEAT_S, 50.0)), st.sampled_from((0, 1)), st.booleans())


@settings(max_examples=300, deadline=None)
@given(st.lists(BEATS, min_size=3, max_size=12))
def test_two_drivers_never_go_on_beside_each_other(beats: list[tuple[float, int, bool]]) -> None:
    """One begins, the other takes over when it may; each reaches the storage, or not, at any beat."""
    kept: dict[str, Any] = {}
    now = [0.0]
    studies = [Unreachable(), Unreachable()]
    owners = [replace(Owner.this_process(), host=host) for host in ("one", "other")]
    leases = [StorageLease(s, owner, lambda: now[0]) for s, owner in zip(studies, owners, strict=True)]
    for study in studies:
        study.kept = kept
    leases[0].take()
    runs = [True, False]

    def go_on(i: int) -> None:
        with contextlib.suppress(EnvironmentProblem, InputError):
            was, runs[i] = runs[i], False
            (leases[i].beat if was else leases[i].take)()
            runs[i] = True

    for seconds, i, gone in beats:
        now[0] += seconds
        studies[i].gone = gone
        go_on(i)
    now[0] += HEARTBEAT_S
    for i in (0, 1):
        studies[i].gone = False
        if runs[i]:
            go_on(i)
    assert sum(runs) <= 1


def study_of(attributes: Unreachable) -> Any:
    """Enough of a study to keep a driver's time; its storage goes once the time was read."""
    attributes.gone = False

    class Study:
        attr = staticmethod(attributes.attr)

        @staticmethod
        def set_attr(name: str, value: Any) -> None:
            attributes.gone = True
            attributes.set_attr(name, value)

    return Study()
