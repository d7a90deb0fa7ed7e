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
        journal.begin(job, server, "a layout")
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
    first.begin("a", "tp1", "a layout")
    # the driver is gone: nobody says how it ended
    assert read_trace_launches(tmp_path).weight_loads == 1
    second = TraceJournal(tmp_path)
    assert second.weight_loads == 0
    second.begin("a", "tp1", "a layout")
    second.end(server_starts=1, failed=False)
    second.begin("b", "tp1", "a layout")
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
    journal.begin("a", "tp1", "a layout")
    journal.end(server_starts=1, failed=False)
    journal.begin("b", "tp1", "a layout")
    journal.end(server_starts=None, failed=True)
    journal.begin("b again", "tp1", "a layout")
    journal.end(server_starts=None, failed=True)
    assert [job.weights_loaded for job in read_trace_launches(tmp_path).jobs] == [True, False, True]


def test_after_a_failure_the_next_job_loads(tmp_path: Path) -> None:
    journal = TraceJournal(tmp_path)
    journal.begin("a", "tp1", "a layout")
    journal.end(server_starts=1, failed=True)
    journal.begin("a again", "tp1", "a layout")
    assert journal.weight_loads == 2
    journal.withdraw()
    assert journal.weight_loads == 1
    assert len(read_trace_launches(tmp_path).jobs) == 1


def test_every_server_of_a_job_counts_and_older_files_say_one(tmp_path: Path) -> None:
    journal = TraceJournal(tmp_path)
    for starts in (3, 0, 1):
        journal.begin("a", "tp1", "a layout")
        journal.end(server_starts=starts, failed=True)
    assert (journal.weight_loads, read_trace_launches(tmp_path).weight_loads) == (4, 4)
    content = json.loads((tmp_path / LAUNCHES_FILE).read_text())
    for job in content["jobs"]:
        del job["extra_starts"]
    (tmp_path / LAUNCHES_FILE).write_text(json.dumps(content))
    assert read_trace_launches(tmp_path).weight_loads == 2


def test_once_a_job_took_more_servers_than_expected_another_setting_is_expected_to_start_one(tmp_path: Path) -> None:
    """The server's room for every setting did not fit: it was started again with less."""
    journal = TraceJournal(tmp_path)
    journal.begin("a", "tp1", "topk 1")
    assert not journal.needs_server("tp1", "topk 2")
    journal.end(server_starts=2, failed=False)
    assert (journal.needs_server("tp1", "topk 1"), journal.needs_server("tp1", "topk 2")) == (False, True)
    journal.begin("a, more prompts", "tp1", "topk 1")
    journal.end(server_starts=0, failed=False)
    journal.begin("b", "tp1", "topk 2")
    assert journal.weight_loads == 3
    journal.end(server_starts=0, failed=False)  # it had the room all the same
    assert journal.weight_loads == 2
    assert (journal.needs_server("tp1", "topk 2"), journal.needs_server("tp1", "topk 4")) == (False, True)


def test_a_job_that_was_to_go_on_with_a_server_and_did_not_is_the_last_such_surprise(tmp_path: Path) -> None:
    journal = TraceJournal(tmp_path)
    for setting, starts in (("topk 1", 1), ("topk 2", 1)):
        journal.begin(setting, "tp1", setting)
        journal.end(server_starts=starts, failed=False)
    assert journal.needs_server("tp1", "topk 4")
    assert read_trace_launches(tmp_path).weight_loads == 2


def test_a_failure_says_nothing_about_room(tmp_path: Path) -> None:
    journal = TraceJournal(tmp_path)
    journal.begin("a", "tp1", "topk 1")
    journal.end(server_starts=2, failed=True)
    assert journal.needs_server("tp1", "topk 1")
    journal.begin("a again", "tp1", "topk 1")
    journal.end(server_starts=1, failed=False)
    assert not journal.needs_server("tp1", "topk 2")


def test_none_without_a_trace_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    assert read_trace_launches(tmp_path / "none").weight_loads == 0
    path = tmp_path / LAUNCHES_FILE
    for text in ("{", "[]", json.dumps({"schema": 1, "jobs": [{"jab": 1}]}), json.dumps({"schema": 2, "jobs": []})):
        path.write_text(text)
        with pytest.raises(InputError, match=LAUNCHES_FILE):
            read_trace_launches(tmp_path)
