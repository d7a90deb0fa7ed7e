"""A real driver on a real Ray, killed at five moments and then told to stop: every trial counts exactly once.

Records, Optuna's storage and MLflow's are the real ones. The server of the five moments is a stand-in under the real
guard, and SGLang itself among the long points; one moment is always SGLang's own.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from doubles.fake_interpreter import make_fake_python
from driver_process import Driver, digests, wait_for_launch, wait_for_none, wait_for_server
from tiny_models import TinyPair

from results.store import StudyFolder

DEMO_PAIR = Path(__file__).parents[2] / "sweeps" / "specs" / "demo_pair"


def stand_in(folder: Path, pair: TinyPair) -> dict[str, Any]:
    """A stand-in server that likes one layout; a trial takes about a second."""
    behaviour = {"step_ms": 20, "grandchildren": True, "good_ids": [-1, 2, 6]}
    engine = {"python": str(make_fake_python(folder)), "env": {"FAKE_SGLANG": json.dumps(behaviour)}}
    return {"target": str(pair.target), "draft": str(pair.draft), "engine": engine}


def real(_: Path, __: TinyPair) -> dict[str, Any]:
    """SGLang itself, serving the demo pair."""
    engine = {"args": {"context_length": 512, "max_total_tokens": 4096}}
    # long enough to be caught while it is measured
    workload = {"prompts": 8, "concurrency": [1], "max_new_tokens": 200, "warmup_prompts": 1}
    return {
        "workload": workload,
        "target": str(DEMO_PAIR / "target"),
        "draft": str(DEMO_PAIR / "draft"),
        "engine": engine,
    }


def make_sweep(
    models: dict[str, Any], folder: Path, ray_address: str, space: dict[str, Any]
) -> tuple[Path, StudyFolder]:
    """A spec on the test's Ray, one server at a time, and the folder its study will have."""
    name = f"kills{os.getpid()}"
    engine = {"device": "cpu", "stop_grace_s": 1.0, "switching": "off"} | models["engine"]
    spec = {
        "workload": {"prompts": 2, "concurrency": [1], "max_new_tokens": 16, "warmup_prompts": 1},
        **models,
        "study": name,
        "engine": engine,
        "cluster": {"address": ray_address, "max_parallel": 1},
        "space": {"layout": ["default", [0, 3, 7]], "tp_size": [1], "eagle_topk": [1]} | space,
        "suspect": {"layout": "default", "num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 4},
        "isolate": False,
        "objective": {"metric": "accept_length"},
        "search": {"sampler": "random"},
        "budget": {"confirmations": 0},
    }
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec))
    return path, StudyFolder(folder / "home" / name)


@pytest.fixture(
    params=[
        pytest.param(stand_in, id="stand_in", marks=pytest.mark.timeout(600)),
        pytest.param(real, id="sglang", marks=[pytest.mark.server, pytest.mark.evidence, pytest.mark.timeout(3600)]),
    ]
)
def sweep(
    request: pytest.FixtureRequest, tmp_path: Path, tiny_pair: TinyPair, ray_address: str
) -> Iterator[tuple[Path, StudyFolder]]:
    """Five servers, one of them a baseline."""
    made = make_sweep(
        request.param(tmp_path, tiny_pair), tmp_path, ray_address, {"num_steps": [1, 2], "num_draft_tokens": [2, 4]}
    )
    yield made
    wait_for_none(made[1].path.name)


def test_every_trial_counts_once_whenever_the_driver_is_killed(sweep: tuple[Path, StudyFolder]) -> None:
    spec, folder = sweep
    study, home = folder.path.name, folder.path.parent
    kept: dict[str, str] = {}

    def check_kept() -> None:
        """What was recorded before is there to the byte."""
        now = digests(folder)
        assert {path: now.get(path) for path in kept} == kept
        kept.update(now)
        wait_for_none(study)

    # 1: while the baseline's server starts
    driver = Driver(spec, home)
    driver.until("started", "baseline-tp1-a1")
    time.sleep(0.3)
    driver.kill()
    assert folder.trial_ids() == ()
    check_kept()

    # 2: while the first trial of the search is measured
    driver = Driver(spec, home)
    driver.until("finished", "baseline-tp1-a1")
    driver.until("started", "t0000-a1")
    wait_for_server(study)
    driver.kill()
    assert folder.trial_ids() == ("baseline-tp1-a1",)
    check_kept()

    # 3: measured, but not written; it is the second attempt at the suspect
    driver = Driver(spec, home, "before_write", "t0001-a2")
    assert driver.end(600) == -signal.SIGKILL
    assert folder.trial_ids() == ("baseline-tp1-a1",)
    check_kept()

    # 4: written, but the study was not told
    driver = Driver(spec, home, "after_write", "t0002-a3")
    assert driver.end(600) == -signal.SIGKILL
    assert folder.trial_ids() == ("baseline-tp1-a1", "t0002-a3")
    check_kept()

    # 5: told, but MLflow and the terminal do not know
    driver = Driver(spec, home, "after_tell", "t0003-a1")
    assert driver.end(600) == -signal.SIGKILL
    assert folder.trial_ids() == ("baseline-tp1-a1", "t0002-a3", "t0003-a1")
    check_kept()

    # told to stop politely while measuring
    driver = Driver(spec, home)
    driver.until("started", "t0004-a1")
    wait_for_server(study)
    driver.process.send_signal(signal.SIGTERM)
    assert driver.until("interrupted")["trial"] == "t0004-a1"
    assert driver.until("result")["reason"] == "interrupted"
    assert driver.end() == 130
    check_kept()

    driver = Driver(spec, home)
    result = driver.until("result")
    assert driver.end() == 0
    assert (result["reason"], result["done"], result["failed"]) == ("exhausted", 5, 0)
    check_kept()

    records = folder.records()
    assert len(records) == len({record.effective.identity for record in records}) == 5
    assert all(record.ok for record in records)
    by_id = {record.trial_id: record for record in records}
    assert by_id["t0002-a3"].role == "suspect"
    assert (by_id["t0002-a3"].attempt, by_id["t0002-a3"].retry_of) == (3, "t0001-a2")
    assert by_id["t0005-a2"].retry_of == "t0004-a1"

    stored = optuna.load_study(study_name=study, storage=f"sqlite:///{folder.path / 'study.db'}")
    told = [trial for trial in stored.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    assert sorted(trial.user_attrs["trial_id"] for trial in told) == sorted(by_id.keys() - {"baseline-tp1-a1"})
    lost = [(t.number, t.user_attrs["reason"]) for t in stored.trials if t.state == optuna.trial.TrialState.FAIL]
    assert lost == [(0, "stale"), (1, "stale"), (4, "interrupted")]
    assert len(told) + len(lost) == len(stored.trials)
    # the best under the layout that the stand-in likes
    best = by_id[result["best"]].effective
    assert best.layout == (0, 3, 7)

    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    runs = [(run.data.tags["trial_id"], run.info.status) for run in client.search_runs([experiment.experiment_id])]
    assert sorted(run for run in runs if run[1] == "FINISHED") == [(name, "FINISHED") for name in sorted(by_id)]
    killed = {name for name, status in runs if status == "KILLED"}
    assert killed == {"baseline-tp1-a1", "t0000-a1", "t0001-a2", "t0004-a1"}
    assert {status for _, status in runs} == {"FINISHED", "KILLED"}


def test_a_second_driver_is_refused_while_the_first_lives(sweep: tuple[Path, StudyFolder]) -> None:
    spec, folder = sweep
    first = Driver(spec, folder.path.parent)
    try:
        first.until("started", "baseline-tp1-a1")
        second = Driver(spec, folder.path.parent)
        _, errors = second.process.communicate(timeout=60)
        assert f"in use by process {first.process.pid} on " in errors
        assert folder.records() == () or len(folder.records()) == 1
    finally:
        # twice Ctrl-C: at once, and still nothing stays behind
        first.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        first.process.send_signal(signal.SIGINT)
        first.end()


@pytest.mark.server
@pytest.mark.timeout(600)
def test_a_driver_killed_while_a_real_server_starts(tmp_path: Path, tiny_pair: TinyPair, ray_address: str) -> None:
    space = {"layout": ["default"], "num_steps": [1], "num_draft_tokens": [4]}
    models = real(tmp_path, tiny_pair)
    models["workload"] |= {"prompts": 2, "max_new_tokens": 32}
    spec, folder = make_sweep(models, tmp_path, ray_address, space)
    study, home = folder.path.name, folder.path.parent
    driver = Driver(spec, home)
    driver.until("started", "t0000-a1")
    wait_for_launch(study)
    time.sleep(1)
    driver.kill()
    wait_for_none(study)
    kept = digests(folder)
    assert folder.trial_ids() == ("baseline-tp1-a1",)

    driver = Driver(spec, home)
    result = driver.until("result")
    assert driver.end() == 0
    assert (result["reason"], result["done"], result["failed"]) == ("exhausted", 2, 0)
    wait_for_none(study)
    again = folder.record("t0001-a2")
    assert (again.role, again.retry_of, again.ok) == ("suspect", "t0000-a1", True)
    assert again.cells[0].accept_length is not None
    assert 1.0 <= again.cells[0].accept_length.value <= 2.1
    assert {path: digest for path, digest in digests(folder).items() if path in kept} == kept
