"""When the failures of single trials end a sweep."""

from __future__ import annotations

from trial_builders import config

from results.failures import Failure, Kind
from sweeps.machine_failures import MachineFailures


def problems(*ends: tuple[int, Kind | None]) -> list[str | None]:
    failures = MachineFailures()
    return [
        failures.problem_of_all(
            config(steps), None if kind is None else Failure(phase="launch", kind=kind, message="the disk is full")
        )
        for steps, kind in ends
    ]


IN_A_ROW = "the disk is full (3 launches in a row failed because of the machine)"


def test_three_in_a_row_of_two_settings() -> None:
    assert problems((1, "machine"), (1, "machine"), (2, "machine")) == [None, None, IN_A_ROW]


def test_one_setting_alone_may_be_to_blame() -> None:
    assert problems(*[(1, "machine")] * 5) == [None] * 5


def test_a_result_in_between_begins_the_count_anew() -> None:
    """A setting that fails by its own fault is a result as well; a lost actor says nothing of the machine."""
    assert problems((1, "machine"), (2, "machine"), (3, None), (1, "machine"))[-1] is None
    assert problems((1, "machine"), (2, "machine"), (3, "oom"), (1, "machine"))[-1] is None
    assert problems((1, "machine"), (2, "machine"), (3, "lost_actor"), (1, "machine"))[-1] == IN_A_ROW


def test_what_every_trial_would_meet_ends_the_sweep_at_once() -> None:
    assert problems((1, "no_engine")) == ["the disk is full"]
