"""When the failures of single trials end a sweep."""

from __future__ import annotations

from trial_builders import config

from results.failures import Failure
from results.records import RECORD_SCHEMA, TrialRecord
from search_spaces.config import EngineConfig
from sweeps.machine_failures import MachineFailures


def ended(effective: EngineConfig, kind: str | None) -> TrialRecord:
    return TrialRecord(
        schema=RECORD_SCHEMA,
        study="s",
        trial_id="t0000-a1",
        number=0,
        attempt=1,
        retry_of=None,
        role="search",
        setting=None,
        effective=effective,
        started_at_unix_s=1.0,
        finished_at_unix_s=2.0,
        launch=None,
        cells=(),
        failure=None if kind is None else Failure(phase="launch", kind=kind, message="the disk is full"),  # type: ignore[arg-type]
    )


def problems(*ends: tuple[int, str | None]) -> list[str | None]:
    failures = MachineFailures()
    return [failures.problem_of_all(ended(config(steps), kind)) for steps, kind in ends]


IN_A_ROW = "the disk is full (3 launches in a row failed because of the machine)"


def test_three_in_a_row_of_two_settings() -> None:
    assert problems((1, "machine"), (1, "machine"), (2, "machine")) == [None, None, IN_A_ROW]


def test_one_setting_alone_may_be_to_blame() -> None:
    assert problems(*[(1, "machine")] * 5) == [None] * 5


def test_a_result_in_between_begins_the_count_anew() -> None:
    """A setting that fails by its own fault is a result as well; a lost actor says nothing of the machine."""
    for kind in (None, "oom"):
        assert problems((1, "machine"), (2, "machine"), (3, kind), (1, "machine"))[-1] is None
    assert problems((1, "machine"), (2, "machine"), (3, "lost_actor"), (1, "machine"))[-1] == IN_A_ROW


def test_what_every_trial_would_meet_ends_the_sweep_at_once() -> None:
    assert problems((1, "no_engine")) == ["the disk is full"]
