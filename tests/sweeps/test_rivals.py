"""Who has to be beaten: the fastest speculative setting, by its slowest launch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trial_builders import baseline, cell, config

from results.cells import summarise_cell
from results.objective import Objective
from results.records import RECORD_SCHEMA, TrialRecord
from search_spaces.config import EngineConfig
from sweeps.rivals import best_so_far


def trial(trial_id: str, effective: EngineConfig, seconds: float) -> TrialRecord:
    return TrialRecord(
        schema=RECORD_SCHEMA,
        study="s",
        trial_id=trial_id,
        number=None,
        attempt=1,
        retry_of=None,
        role="baseline" if effective.is_baseline else "search",
        setting=None,
        effective=effective,
        started_at_unix_s=1.0,
        finished_at_unix_s=2.0,
        launch=None,
        cells=(summarise_cell(cell(seconds=seconds, triple=effective.triple), effective.triple),),
        failure=None,
    )


def test_the_slowest_launch_of_the_fastest_setting() -> None:
    records = [
        trial("b", baseline(), 0.1),
        trial("a1", config(2), 2.0),
        trial("a2", config(2), 2.5),
        trial("c1", config(3), 2.2),
    ]
    rival = best_so_far(records, Objective())
    assert rival is not None
    assert rival.concurrency == 1
    assert rival.throughput.value == pytest.approx(82 / 2.2)
    # two launches of one setting that differ by a quarter are a wide noise floor
    assert rival.noise > 0.2


def test_nobody_is_to_be_beaten_before_something_was_measured_or_when_speed_is_not_the_aim() -> None:
    only = [trial("b", baseline(), 0.1)]
    both = [*only, trial("a", config(2), 2.0)]
    unranked = replace(both[1], cells=(replace(both[1].cells[0], not_ranked=("warm",)),))
    assert best_so_far([], Objective()) is None
    assert best_so_far(only, Objective()) is None
    assert best_so_far([unranked], Objective()) is None
    assert best_so_far(both, Objective(metric="accept_length")) is None
    assert best_so_far(both, Objective(metric="tpot_ms_p50")) is None
    assert best_so_far(both, Objective()) is not None


def test_corners_of_another_workload_are_nobodys_rival() -> None:
    record = trial("k", config(3), 0.5)
    corners = [
        replace(record, trial_id=f"k{at}", role="corner", cells=(replace(record.cells[0], workload_id="x" * 16),))
        for at in range(3)
    ]
    rival = best_so_far([trial("a", config(2), 2.0), *corners], Objective())
    assert rival is not None
    assert rival.throughput.value == pytest.approx(82 / 2.0)
    assert rival.noise < 0.1
