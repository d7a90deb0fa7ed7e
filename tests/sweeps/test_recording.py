"""What a trial leaves on disk: everything observed, from which its summaries come out again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.timed_answers import TimedPlan
from doubles.timed_server import TimedServer

from actors.job import TrialOutcome
from actors.load.measurement import measure_cells, never_dead, warm_up
from actors.load.prompts import builtin_prompts
from actors.load.workload import Workload
from results.cells import summarised
from results.observations import LaunchObservation
from results.observed_cells import OBSERVED_FILE
from results.store import StudyFolder
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import InputError
from sweeps.recording import record_of, write_record
from sweeps.tasks import Task

PLAN = TimedPlan(ttft_s=0.004, step_s=0.001, acceptance=(0.8, 0.6, 0.4), num_draft_tokens=4, fail_first=(503,))
CONFIG = EngineConfig(layout=(0, 3, 7), triple=Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4), tp_size=1)
LAUNCH = LaunchObservation(
    command=("python", "-m", "sglang.launch_server", "--model-path", "target"),
    engine_version="0.5.23",
    accelerator="NVIDIA H200",
    stand_in_kernels=False,
    ready_s=12.5,
    pid=4242,
    port=30000,
    device_ids=("0",),
    effective_args={"device": "cuda", "max_running_requests": 2, "cuda_graph_max_bs": 1},
)
TASK = Task(
    base="t0001", role="search", setting=None, config=CONFIG, trial=None, attempt=1, first_attempt=1, retry_of=None
)


@pytest.fixture(scope="module")
def outcome() -> TrialOutcome:
    """Two closed loops and an open one, with a retry in it and without a flush."""
    chosen = builtin_prompts(16, 0)
    workload = Workload(
        prompts=chosen.prompts,
        warmup=(),
        concurrency=(1, 4),
        request_rate=(200.0,),
        max_new_tokens=40,
        temperature=0.0,
        ignore_eos=True,
        stream=True,
        request_timeout_s=30.0,
        max_attempts=2,
    )
    with TimedServer(replace(PLAN, flush_status=404)) as server:
        assert warm_up(server.url, workload) is None
        cells, failure = measure_cells(server.url, workload, failure_now=never_dead, triple=CONFIG.triple)
    assert failure is None
    return TrialOutcome(
        trial_id="t0001-a1",
        started_at_unix_s=1.0,
        finished_at_unix_s=2.0,
        launch=LAUNCH,
        cells=cells,
        failure=None,
        server_log="",
    )


def test_every_summary_comes_out_of_the_files_again(outcome: TrialOutcome, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    folder.open_for_write()
    written = record_of("study", TASK, outcome)
    write_record(folder, written, outcome)
    assert folder.observations(written.trial_id) == outcome.cells
    (kept,) = folder.records()
    again = tuple(summarised(one, kept.launch, CONFIG.triple) for one in folder.observations(written.trial_id))
    assert again == kept.cells == written.cells
    # and they hold what the rows alone do not tell
    first, _, open_loop = kept.cells
    assert any("1 retries were needed (1 x refused)" in warning for warning in first.warnings)
    assert first.counted_accept_length is not None
    assert open_loop.request_rate == 200.0
    assert open_loop.most_in_flight is not None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not the cells of a launch"),
        ('{"schema": 9, "cells": []}', "schema 9, this version reads 1"),
        ('{"schema": 1, "cells": [{}]}', "not the cells of a launch: KeyError"),
        ("[]", "not the cells of a launch"),
    ],
)
def test_broken_observations_are_named_in_one_line(
    outcome: TrialOutcome, tmp_path: Path, content: str, words: str
) -> None:
    folder = StudyFolder(tmp_path / "study")
    folder.open_for_write()
    write_record(folder, record_of("study", TASK, outcome), outcome)
    path = folder.trial_file(outcome.trial_id, OBSERVED_FILE)
    assert json.loads(path.read_text())["schema"] == 1
    path.write_text(content)
    with pytest.raises(InputError, match=words) as problem:
        folder.observations(outcome.trial_id)
    assert str(path) in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_record_from_before_observations_were_kept_has_none(outcome: TrialOutcome, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    folder.open_for_write()
    folder.write_trial(record_of("study", TASK, outcome), {}, {})
    assert folder.observations(outcome.trial_id) == ()
