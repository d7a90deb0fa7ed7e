"""One trial's run in MLflow: flat, asked and effective values apart, and nothing that is too long or misleads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from result_builders import config, launch, record, summary
from tracked_study import LOG, RIGHT, TrackedStudy, baseline, done, start

from results.failures import Failure
from results.mlflow_fields import run_fields, run_params


def artifact_names(run) -> list[str]:
    location = urlsplit(run.info.artifact_uri)
    assert location.scheme == "file"
    return sorted(entry.name for entry in Path(location.path).iterdir())


def test_a_trial_is_one_flat_run_with_asked_and_effective_values_apart(
    tracked: TrackedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    base = baseline(tracked)
    start(tracked.view)
    (running,) = tracked.runs()
    assert running.info.status == "RUNNING"
    made = done(tracked)
    tracked.view.finish(made, [base])
    (run,) = tracked.runs()
    assert not tracked.view.needs_sync
    assert run.info.status == "FINISHED"
    assert run.info.run_id == running.info.run_id
    assert (run.data.params["req.num_draft_tokens"], run.data.params["eff.num_draft_tokens"]) == ("8", "2")
    assert (run.data.params["layout"], run.data.params["tp"]) == ("0,3,7", "1")
    metrics = run.data.metrics
    assert metrics["accept_length"] == 2.5
    assert metrics["p1"] == pytest.approx(32 / 43)
    assert (metrics["throughput_c1"], metrics["throughput_c8"]) == (180.0, 300.0)
    assert metrics["speedup_c1"] == pytest.approx(1.8)
    assert metrics["speedup"] == metrics["speedup_c1"]
    assert "speedup_c8" not in metrics
    tags = run.data.tags
    assert (tags["sweep.study"], tags["trial_id"], tags["role"], tags["status"]) == (
        tracked.name,
        "t1",
        "search",
        "ok",
    )
    assert "mlflow.parentRunId" not in tags
    assert artifact_names(run) == ["launch.sh", "record.json", "server.log", "server_info.json"]


def test_a_value_read_back_otherwise_than_predicted_loses_nothing(tracked: TrackedStudy) -> None:
    predicted = config((0, 3, 7), (1, 1, 8))
    start(tracked.view, effective=predicted)
    tracked.view.finish(done(tracked))
    (run,) = tracked.runs()
    assert not tracked.view.needs_sync
    assert run.data.params["eff.num_draft_tokens"] == "8"
    assert run.data.params["seen.eff.num_draft_tokens"] == "2"
    assert run.data.params["eff.num_steps"] == "1"
    assert run.data.metrics["accept_length"] == 2.5


def test_long_server_arguments_are_an_artifact_and_a_hash(tracked: TrackedStudy) -> None:
    long_launch = launch(effective_args={"server_args": "x" * 9000})
    made = replace(record("t1", RIGHT, cells=[summary()]), study=tracked.name, launch=long_launch)
    tracked.folder.write_trial(made, {}, LOG)
    tracked.view.finish(made)
    (run,) = tracked.runs()
    assert max(len(value) for value in run.data.params.values()) <= 64
    assert len(run.data.params["eff.args_sha256"]) == 64
    stored = Path(urlsplit(run.info.artifact_uri).path) / "server_info.json"
    assert "x" * 9000 in stored.read_text()


def test_long_flag_values_become_hashes_and_odd_names_legal() -> None:
    flags = (("json[args]", "y" * 700), ("page_size", 16))
    params = run_params(None, replace(RIGHT, flags=flags))
    assert params["eff.json_args_"].startswith("sha256:")
    assert params["eff.page_size"] == "16"


def test_failures_are_runs_with_their_kind(tracked: TrackedStudy) -> None:
    failed = replace(
        record("t1", RIGHT, failure=Failure(phase="launch", kind="oom", message="out of memory")), study=tracked.name
    )
    lost = replace(
        record("t2", RIGHT, failure=Failure(phase="measure", kind="interrupted", message="Ctrl-C")), study=tracked.name
    )
    for one in (failed, lost):
        tracked.folder.write_trial(one, {}, {})
        tracked.view.finish(one)
    by_trial = {run.data.tags["trial_id"]: run for run in tracked.runs()}
    assert by_trial["t1"].info.status == "FAILED"
    assert by_trial["t1"].data.tags["failure.kind"] == "oom"
    assert by_trial["t2"].info.status == "KILLED"
    assert "accept_length" not in by_trial["t1"].data.metrics


def test_cells_that_may_not_be_ranked_do_not_win_in_mlflow_either() -> None:
    warm = record("t1", RIGHT, cells=[summary(throughput=1860.0, not_ranked=("warm cache: 90%",))])
    fields = run_fields(warm, {})
    assert "throughput" not in fields.metrics
    assert fields.metrics["unranked.throughput"] == 1860.0
    assert fields.tags["not_ranked"] == "warm cache: 90%"
