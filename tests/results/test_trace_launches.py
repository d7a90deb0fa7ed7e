"""What traces cost, noted so that no death of a driver loses a launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.trace_launches import LAUNCHES_FILE, TraceJournal, read_trace_launches
from search_spaces.errors import InputError


def test_one_server_serves_jobs_of_a_kind(tmp_path: Path) -> None:
    now = [100.0]
    journal = TraceJournal(tmp_path / "traces", clock=lambda: now[0])
    for job, server, loaded in (("a", "tp1", True), ("b", "tp1", False), ("c", "tp2", True)):
        journal.begin(job, server)
        now[0] += 2.5
        journal.end(server_starts=int(loaded), failed=False)
    kept = read_trace_launches(tmp_path / "traces")
    assert [(job.job, job.weights_loaded, job.ended) for job in kept.jobs] == [
        ("a", True, True),
        ("b", False, True),
        ("c", True, True),
    ]
    assert (kept.weight_loads, kept.elapsed_s, journal.weight_loads) == (2, 7.5, 2)


def test_a_job_that_never_ended_counts_as_what_was_expected(tmp_path: Path) -> None:
    first = TraceJournal(tmp_path)
    first.begin("a", "tp1")
    # the driver is gone: nobody says how it ended
    assert read_trace_launches(tmp_path).weight_loads == 1
    second = TraceJournal(tmp_path)
    assert second.weight_loads == 0
    second.begin("a", "tp1")
    second.end(server_starts=1, failed=False)
    second.begin("b", "tp1")
    kept = read_trace_launches(tmp_path)
    assert [(job.job, job.weights_loaded, job.ended) for job in kept.jobs] == [
        ("a", True, False),
        ("a", True, True),
        ("b", False, False),  # it would have gone on with the server of "a"
    ]
    assert (kept.weight_loads, second.weight_loads) == (2, 1)


def test_a_failure_on_a_running_server_cost_no_launch(tmp_path: Path) -> None:
    """A request that times out says nothing of the server; the next job has a new one."""
    journal = TraceJournal(tmp_path)
    journal.begin("a", "tp1")
    journal.end(server_starts=1, failed=False)
    journal.begin("b", "tp1")
    journal.end(server_starts=None, failed=True)
    journal.begin("b again", "tp1")
    journal.end(server_starts=None, failed=True)
    assert [job.weights_loaded for job in read_trace_launches(tmp_path).jobs] == [True, False, True]


def test_after_a_failure_the_next_job_loads(tmp_path: Path) -> None:
    journal = TraceJournal(tmp_path)
    journal.begin("a", "tp1")
    journal.end(server_starts=1, failed=True)
    journal.begin("a again", "tp1")
    assert journal.weight_loads == 2
    journal.withdraw()
    assert journal.weight_loads == 1
    assert len(read_trace_launches(tmp_path).jobs) == 1


def test_every_server_of_a_job_counts_and_older_files_say_one(tmp_path: Path) -> None:
    journal = TraceJournal(tmp_path)
    for starts in (3, 0, 1):
        journal.begin("a", "tp1")
        journal.end(server_starts=starts, failed=True)
    assert (journal.weight_loads, read_trace_launches(tmp_path).weight_loads) == (4, 4)
    content = json.loads((tmp_path / LAUNCHES_FILE).read_text())
    for job in content["jobs"]:
        del job["extra_starts"]
    (tmp_path / LAUNCHES_FILE).write_text(json.dumps(content))
    assert read_trace_launches(tmp_path).weight_loads == 2


def test_none_without_a_trace_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    assert read_trace_launches(tmp_path / "none").weight_loads == 0
    path = tmp_path / LAUNCHES_FILE
    for text in ("{", "[]", json.dumps({"schema": 1, "jobs": [{"jab": 1}]}), json.dumps({"schema": 2, "jobs": []})):
        path.write_text(text)
        with pytest.raises(InputError, match=LAUNCHES_FILE):
            read_trace_launches(tmp_path)
