"""Real servers: a study that follows its surface over two TP sizes, cut off by kill -9 and resumed.

One weight load for the traces and the settings at the first TP size, one wherever the search takes another TP size or
begins again, beside the baselines, the check and the confirmation, each counted; every measured request takes exactly
the verify steps that its trace says. Writes `benchmarks/results/surface_study.json`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from demo_sweeps import HEAD, PAIR, ROOT, specsweep
from driver_process import wait_for_none

from actors.demo_models.corpus import prompts
from benchmarks.result_file import write_result
from results.records import TrialRecord
from results.store import StudyFolder
from results.study_surface import traces_path
from results.trace_launches import read_trace_launches

RESULTS = ROOT / "benchmarks" / "results" / "surface_study.json"
STUDY, PROMPTS, TOKENS = "surfaced", 6, 48
SETTINGS = 6
"""(1,1,2), (3,1,4) and (3,2,4) at two TP sizes."""

SECTIONS = f"""\
space:
  layout: [[0, 3, 7]]
  num_steps: [1, 3]
  eagle_topk: [1, 2]
  num_draft_tokens: [4]
  tp_size: [1, 2]
workload:
  prompts: {{prompts}}
  count: {PROMPTS}
  max_new_tokens: {TOKENS}
  concurrency: [1]
  ignore_eos: true
  half_width: null
search: {{{{sampler: surface}}}}
"""


@pytest.mark.evidence
@pytest.mark.server
@pytest.mark.timeout(3600)
def test_every_weight_load_is_counted_and_rounds_are_as_predicted(tmp_path: Path) -> None:
    spec, folder = write(tmp_path), StudyFolder(tmp_path / "home" / STUDY)
    planned = json.loads(specsweep(tmp_path, "plan", str(spec), "--json", timeout_s=300))
    began_s = time.monotonic()
    cut_off(tmp_path, spec, folder)
    kept = {record.trial_id: record for record in folder.records()}
    assert read_trace_launches(traces_path(folder)).weight_loads == 1
    specsweep(tmp_path, "resume", STUDY, timeout_s=3000)
    judge(tmp_path, planned["study_launches"], frozenset(kept), time.monotonic() - began_s)
    # what was there before the kill is there still
    assert {name: folder.record(name) for name in kept} == kept


def judge(folder: Path, planned: dict[str, int], kept: frozenset[str], wall_s: float) -> None:
    """What a finished study in `folder`/home must have; writes the result. `kept` was recorded before the kill."""
    study = StudyFolder(folder / "home" / STUDY)
    records = sorted(study.records(), key=lambda record: record.started_at_unix_s)
    launched = Counter(record.role for record in records if loaded(record))
    traces = read_trace_launches(traces_path(study))
    report = json.loads(specsweep(folder, "report", STUDY, "--json", "--no-plots", timeout_s=300))
    status = json.loads(specsweep(folder, "status", STUDY, "--json", timeout_s=300))
    notes = report["search"]
    write_result(
        RESULTS,
        command="python -m pytest -m evidence tests/sweeps/test_surface_study_on_servers.py",
        content={
            "load": {"prompts": PROMPTS, "max_new_tokens": TOKENS, "concurrency": 1},
            "planned": planned,
            "weight_loads": {**launched, "traces": traces.weight_loads},
            "trials": [[record.trial_id, record.effective.tp_size, loaded(record)] for record in records],
            "recorded_before_the_kill": sorted(kept),
            "wall_s": round(wall_s, 1),
            "rounds": notes["rounds"],
            "comparisons": notes["comparisons"],
            "findings": report["findings"],
        },
    )
    # at tp 1 the server that traced goes on; another one is loaded after the kill, and where the TP size changes
    assert traces.weight_loads == planned["traces"] == 1
    assert [loaded(record) for record in records] == expected_loads(records, kept)
    assert (launched["baseline"], launched["check"]) == (planned["baselines"], planned["check"]) == (2, 1)
    # the confirmation of one may put another one in front
    assert planned["confirmations"] == 1 <= launched["confirm"] <= 3
    records_loaded = sum(launched.values())
    assert status["study_launches"] == {"records": records_loaded, "traces": 1, "all": records_loaded + 1}
    assert (status["left"], status["failed"]) == (0, 0)
    assert len({record.effective for record in records if record.role == "search"}) == SETTINGS
    # every measurement of a traced setting, at tp 2 by the trace at tp 1 as well
    assert notes["fallback"] is None
    assert {row["tp_size"] for row in notes["rounds"]} == {1, 2}
    assert {row["trial"] for row in notes["rounds"]} == {r.trial_id for r in records if r.role != "baseline"}
    assert all(row["equal_prompts"] == row["prompts"] == PROMPTS for row in notes["rounds"]), notes["rounds"]


def expected_loads(records: Sequence[TrialRecord], kept: frozenset[str]) -> list[bool]:
    """Whether each trial had to load weights: all but those of the search that find a server of their TP size."""
    loads, running, resumed = [], 1, False
    for record in records:
        if record.trial_id not in kept and not resumed:
            running, resumed = 0, True
        searched = record.role == "search"
        loads.append(not searched or record.effective.tp_size != running)
        # baseline and check come before the traces at tp 1, whose server the search goes on with
        running = record.effective.tp_size if searched else 1 if record.trial_id in kept else 0
    return loads


def loaded(record: TrialRecord) -> bool:
    return record.launch is None or record.launch.weights_loaded


def write(folder: Path) -> Path:
    file, spec = folder / "prompts.jsonl", folder / f"{STUDY}.yaml"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in prompts(PROMPTS + 8)))
    head = HEAD.replace("gpus: 1", "gpus: 2").format(study=STUDY, pair=PAIR, switching="on")
    spec.write_text(head + SECTIONS.format(prompts=file))
    return spec


def cut_off(folder: Path, spec: Path, study: StudyFolder) -> None:
    """Run the study until a setting of the search is recorded, and kill the driver."""
    kept: dict[str, Any] = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    driver = subprocess.Popen(
        [sys.executable, "-m", "sweeps", "run", str(spec)],
        cwd=ROOT,
        env=kept | {"SPECSWEEP_HOME": str(folder / "home"), "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not any(name.startswith("t0") for name in study.trial_ids()):
            assert driver.poll() is None, "the driver ended before a setting was measured"
            time.sleep(0.2)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait(60)
    wait_for_none(STUDY, timeout_s=120)
