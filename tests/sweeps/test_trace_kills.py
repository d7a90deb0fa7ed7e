"""A driver that dies while it traces: its server was started, and the study's budget knows."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from doubles.fake_interpreter import make_fake_python
from driver_process import Driver, wait_for_none
from tiny_models import TinyPair

from results.search_notes import read_notes
from results.store import StudyFolder
from results.study_surface import traces_path
from results.trace_launches import TraceLaunches, read_trace_launches
from sweeps.home import find_study
from sweeps.study_status import read_status

LAUNCHES = 4


def wait_for_job(folder: StudyFolder, driver: Driver) -> TraceLaunches:
    """Until a trace's job is on its server."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        spent = read_trace_launches(traces_path(folder))
        if spent.jobs and not spent.jobs[-1].ended:
            return spent
        assert driver.process.poll() is None
        time.sleep(0.02)
    raise AssertionError("nothing is traced")


@pytest.mark.timeout(600)
def test_the_launch_of_a_trace_that_was_cut_off_counts(tmp_path: Path, tiny_pair: TinyPair, ray_address: str) -> None:
    name, starts = f"traced{os.getpid()}", tmp_path / "starts"
    behaviour = {"step_ms": 60, "on_order": "obey", "count_file": str(starts)}
    spec = {
        "study": name,
        "target": str(tiny_pair.target),
        "draft": str(tiny_pair.draft),
        "engine": {
            "python": str(make_fake_python(tmp_path)),
            "env": {"FAKE_SGLANG": json.dumps(behaviour)},
            "device": "cpu",
            "stop_grace_s": 1.0,
            "switching": "on",
        },
        "cluster": {"address": ray_address, "max_parallel": 1},
        "space": {"layout": [[0, 3, 7]], "num_steps": [1, 2], "eagle_topk": [1], "num_draft_tokens": [2]},
        "workload": {"prompts": 2, "concurrency": [1], "max_new_tokens": 16, "warmup_prompts": 1},
        "search": {"sampler": "surface"},
        "budget": {"launches": LAUNCHES},
        "tracking": {"enabled": False},
    }
    path, home = tmp_path / "spec.yaml", tmp_path / "home"
    path.write_text(json.dumps(spec))
    folder = StudyFolder(home / name)

    driver = Driver(path, home)
    driver.until("finished", "baseline-tp1-a1")
    spent = wait_for_job(folder, driver)
    # its server is there, or the launch was noted before it came
    while len(starts.read_text().splitlines()) < 3:
        time.sleep(0.02)
    driver.kill()
    wait_for_none(name)
    assert [(job.weights_loaded, job.ended) for job in spent.jobs] == [(True, False)]
    assert read_trace_launches(traces_path(folder)) == spent
    assert [record.role for record in folder.records()] == ["baseline", "check"]

    driver = Driver(path, home)
    result = driver.until("result")
    assert driver.end() == 0
    wait_for_none(name)
    # baseline, check, the trace that was cut off, the trace again: no setting of the search is left to launch
    assert result["reason"] == "launches"
    assert len(starts.read_text().splitlines()) == LAUNCHES
    notes = read_notes(folder)
    assert notes is not None
    assert (notes.weight_loads, notes.fallback) == (2, None)
    assert [row["prompts"] for row in notes.traces] == [2]
    status = read_status(find_study(name, home)).to_json()
    assert status["study_launches"] == {"records": 2, "traces": 2, "all": LAUNCHES}
    assert [(row["prompts"], row["wanted"]) for row in status["traces"]] == [(2, True)]
