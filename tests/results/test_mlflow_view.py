"""The MLflow view on a real store: flat runs, immutable params, dead runs, and a rebuild that can be repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from result_builders import config, launch, record, row, setting_of, summary
from tracked_study import TrackedStudy

from results.failures import Failure
from results.mlflow_fields import run_fields, run_params, speedups_of, throughput_baselines
from results.mlflow_view import MlflowView
from results.store import StudyFolder
from search_spaces.config import Setting
from search_spaces.errors import EnvironmentProblem, InputError

RIGHT = config((0, 3, 7), (1, 1, 2))
ASKED = Setting(layout="0,3,7", num_steps=1, eagle_topk=1, num_draft_tokens=8, tp_size=1)
LOG = {"server.log": b"started\n"}


def done(tracked: TrackedStudy, trial_id: str = "t1", throughput: float = 180.0, **changes):
    made = record(
        trial_id, RIGHT, cells=[summary(throughput=throughput), summary(throughput=300.0, concurrency=8)], **changes
    )
    made = replace(made, study=tracked.name, setting=changes.get("setting", ASKED))
    tracked.folder.write_trial(made, {(1, None): (row(),)}, LOG)
    return made


def baseline(tracked: TrackedStudy, throughput: float = 100.0, trial_id: str = "b1", **changes):
    cells = [summary(throughput=throughput, accept_length=None)]
    made = record(trial_id, config(None, None), cells=cells, role="baseline", **changes)
    made = replace(made, study=tracked.name)
    tracked.folder.write_trial(made, {}, LOG)
    return made


def start(view: MlflowView, trial_id: str = "t1", **changes) -> None:
    view.start_run(trial_id, **{"setting": ASKED, "effective": RIGHT, "role": "search", **changes})


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


def view_of(tracked: TrackedStudy) -> list[tuple]:
    return sorted(
        (
            r.data.tags["trial_id"],
            r.info.status,
            tuple(sorted(r.data.params.items())),
            tuple(sorted(r.data.metrics.items())),
        )
        for r in tracked.runs()
    )


def test_sync_rebuilds_everything_and_repeating_it_changes_nothing(tracked: TrackedStudy) -> None:
    records = [baseline(tracked), done(tracked, "t1"), done(tracked, "t2", 150.0)]
    first = tracked.view.sync(records)
    assert first.written == ("b1", "t1", "t2")
    once = view_of(tracked)
    again = tracked.reopened().sync(records)
    assert (again.written, again.unchanged, again.removed) == ((), ("b1", "t1", "t2"), 0)
    assert view_of(tracked) == once
    assert len(once) == 3


def test_sync_gives_what_a_live_run_gives(tracked: TrackedStudy) -> None:
    start(tracked.view)
    base, made = baseline(tracked), done(tracked)
    tracked.view.finish(base)
    tracked.view.finish(made, [base])
    live = view_of(tracked)
    for run in tracked.runs():
        tracked.view._client.delete_run(run.info.run_id)
    tracked.view.sync([base, made])
    assert view_of(tracked) == live


def test_sync_mends_half_written_and_duplicate_runs(tracked: TrackedStudy) -> None:
    made = done(tracked)
    start(tracked.view)
    start(tracked.view)
    report = tracked.view.sync([made])
    assert (report.written, report.removed) == (("t1",), 2)
    assert len(tracked.runs()) == 1


def test_a_later_baseline_brings_the_speedup(tracked: TrackedStudy) -> None:
    made = done(tracked)
    tracked.view.finish(made)
    assert "speedup" not in tracked.runs()[0].data.metrics
    records = [made, baseline(tracked, 90.0)]
    tracked.view.sync(records)
    speedups = {run.data.tags["trial_id"]: run.data.metrics.get("speedup") for run in tracked.runs()}
    assert speedups["t1"] == pytest.approx(2.0)


def test_every_later_baseline_changes_the_speedups_that_stand_there(tracked: TrackedStudy) -> None:
    """The report divides by the mean of all baselines; so does the view, without a `sync`."""
    past = 1_700_000_000.0
    first, made = baseline(tracked, at_s=past), done(tracked, at_s=past)
    tracked.view.finish(first)
    tracked.view.finish(made, [first])
    middle, last = baseline(tracked, 50.0, "b2", at_s=past), baseline(tracked, 120.0, "b3", at_s=past)
    tracked.view.finish(middle, [first, made])
    tracked.view.finish(last, [first, made, middle])
    by_trial = {run.data.tags["trial_id"]: run for run in tracked.runs()}
    assert by_trial["t1"].data.metrics["speedup"] == pytest.approx(2.0)
    assert by_trial["t1"].data.metrics["speedup_c1"] == pytest.approx(2.0)
    assert by_trial["b1"].data.metrics["speedup"] == pytest.approx(10 / 9)
    live = view_of(tracked)
    assert tracked.view.sync([first, made, middle, last]).unchanged == ("b1", "t1", "b2", "b3")
    assert view_of(tracked) == live


def test_a_corner_of_another_workload_has_no_speedup() -> None:
    base = throughput_baselines(
        [record("b1", config(None, None), cells=[summary(accept_length=None)], role="baseline")]
    )
    corner = record("c1", RIGHT, cells=[summary(throughput=200.0, workload_id="x" * 16)], role="corner")
    assert speedups_of(corner, base) == {}
    assert speedups_of(record("t1", RIGHT, cells=[summary(throughput=200.0)]), base) == {(1, None): pytest.approx(2.0)}


def test_sync_adds_what_a_later_version_computes_from_the_same_record(
    tracked: TrackedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = done(tracked)
    with monkeypatch.context() as earlier:
        earlier.setattr("results.mlflow_fields._LATENCIES", ())
        tracked.view.finish(made)
    assert "tpot_ms_p50" not in tracked.runs()[0].data.metrics
    assert tracked.view.sync([made]).unchanged == ("t1",)
    (run,) = tracked.runs()
    assert run.data.metrics["tpot_ms_p50"] == made.cells[0].tpot_ms_p50


DEAD_DRIVER = """
import os, signal, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pathlib import Path
from result_builders import config, setting_of
from results.mlflow_view import MlflowView
from results.store import StudyFolder

uri, folder, name, root = sys.argv[3:7]
view = MlflowView.open_or_fail(uri, StudyFolder(Path(folder)), study=name, artifact_root=Path(root))
effective = config()
view.start_run("t1", setting=setting_of(effective), effective=effective, role="search")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_left_by_a_killed_driver_is_closed_and_linked(tracked: TrackedStudy) -> None:
    root, here = Path(__file__).parents[2], Path(__file__).parent
    arguments = [str(root), str(here), tracked.uri, str(tracked.folder.path), tracked.name, str(tracked.artifact_root)]
    environment = {**os.environ, "MLFLOW_RUN_ID": "0" * 32}
    dead = subprocess.run(
        [sys.executable, "-c", DEAD_DRIVER, *arguments], env=environment, capture_output=True, timeout=120, check=False
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()[-500:]
    assert b"INFO" not in dead.stderr
    (left,) = tracked.runs()
    assert left.info.status == "RUNNING"

    resumed = tracked.reopened()
    assert resumed.sync([]).removed == 0
    assert resumed.close_dead_runs() == ("t1",)
    assert resumed.close_dead_runs() == ()
    start(resumed)
    assert resumed.close_dead_runs() == ()  # its own run lives
    made = done(tracked)
    resumed.finish(made)
    killed, fresh = tracked.runs()
    assert (killed.info.status, killed.data.tags["status"]) == ("KILLED", "killed")
    assert fresh.info.status == "FINISHED"
    assert fresh.data.tags["retry_of"] == "t1"
    assert fresh.data.tags["retry_of_run"] == killed.info.run_id
    assert tracked.reopened().sync([made]).unchanged == ("t1",)
    assert len(tracked.runs()) == 2


def test_a_driver_that_died_after_the_record_leaves_one_finished_run(tracked: TrackedStudy) -> None:
    start(tracked.view)
    made = done(tracked)
    resumed = tracked.reopened()
    resumed.close_dead_runs()
    resumed.sync([made])
    (run,) = tracked.runs()
    assert run.info.status == "FINISHED"


def test_an_interrupted_trial_is_killed_and_its_next_run_linked(tracked: TrackedStudy) -> None:
    start(tracked.view)
    tracked.view.kill("t1")
    tracked.view.kill("unknown")
    assert tracked.runs()[0].info.status == "KILLED"
    start(tracked.view)
    assert tracked.runs()[1].data.tags["retry_of"] == "t1"


def test_a_retry_under_its_own_id_is_linked_by_trial(tracked: TrackedStudy) -> None:
    start(tracked.view, trial_id="t1-a1", retry_of="t1-a0")
    assert tracked.runs()[0].data.tags["retry_of"] == "t1-a0"


def test_an_mlflow_that_fails_later_stops_nothing_and_is_mended_by_sync(
    tracked: TrackedStudy, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __getattr__(self, name: str):
            raise ConnectionError("the server\nhas gone")

    good = tracked.view._client
    tracked.view._client = Broken()
    made = done(tracked)
    start(tracked.view)
    tracked.view.finish(made)
    tracked.view.close_dead_runs()
    assert tracked.view.needs_sync
    assert tracked.folder.stale_view_path.exists()
    assert "the server has gone" in caplog.text
    with pytest.raises(EnvironmentProblem, match="the server has gone"):
        tracked.view.sync([made])
    assert tracked.reopened().needs_sync
    tracked.view._client = good
    assert tracked.view.sync([made]).written == ("t1",)
    assert not tracked.view.needs_sync
    assert not tracked.folder.stale_view_path.exists()


def test_a_copy_in_another_store_leaves_the_marker_of_the_studys_own(tracked: TrackedStudy) -> None:
    made = done(tracked)
    tracked.folder.stale_view_path.touch()
    copy = MlflowView.open_or_fail(
        tracked.uri,
        tracked.folder,
        study=tracked.name,
        experiment=f"{tracked.name}-copy",
        artifact_root=tracked.artifact_root,
        copy=True,
    )
    assert copy.sync([made]).written == ("t1",)
    assert tracked.folder.stale_view_path.exists()
    tracked.reopened().sync([made])
    assert not tracked.folder.stale_view_path.exists()


def namesake(tracked: TrackedStudy, path: Path, study_id: str | None) -> TrackedStudy:
    """Somebody else's study of the same name on the same server."""
    folder = StudyFolder(path)
    folder.open_for_write()
    if study_id is not None:
        folder.write_study({"id": study_id})
    other = replace(tracked, folder=folder)
    return replace(other, view=other.reopened())


@pytest.mark.parametrize("ids", [("aa", "bb"), ("aa", None), (None, "bb")])
def test_two_studies_of_one_name_leave_each_others_runs_alone(
    tracked: TrackedStudy, tmp_path: Path, ids: tuple[str | None, str | None]
) -> None:
    ours, theirs = (namesake(tracked, tmp_path / f"study{at}", one) for at, one in enumerate(ids))
    start(theirs.view)
    assert ours.view.close_dead_runs() == ()
    assert tracked.runs()[0].info.status == "RUNNING"
    their_record = done(theirs)
    theirs.view.finish(their_record)
    our_record = done(ours, throughput=90.0)
    ours.view.finish(our_record)
    start(ours.view, "t2")
    for one, made in ((ours, our_record), (theirs, their_record)):
        report = one.reopened().sync([made])
        assert (report.written, report.unchanged, report.removed) == ((), ("t1",), 0)
    start(theirs.view, "t2")
    assert theirs.reopened().close_dead_runs() == ("t2",)
    assert sorted(run.info.status for run in tracked.runs()) == ["FINISHED", "FINISHED", "KILLED", "RUNNING"]


def test_a_study_from_before_there_were_ids_keeps_its_runs(tracked: TrackedStudy) -> None:
    made = done(tracked)
    tracked.view.finish(made)
    tracked.folder.write_study({"study": tracked.name})
    assert tracked.reopened().sync([made]).unchanged == ("t1",)
    assert "sweep.study_id" not in tracked.runs()[0].data.tags


def test_a_deleted_experiment_is_restored(tracked: TrackedStudy) -> None:
    made = done(tracked)
    tracked.view.sync([made])
    tracked.view._client.delete_experiment(tracked.view._experiment_id)
    report = tracked.reopened().sync([made])
    assert set(report.written + report.unchanged) == {"t1"}
    assert len(tracked.runs()) == 1


@pytest.mark.parametrize(
    "uri", ["file:///data/mlruns", "mlruns", "./mlruns", "/data/mlruns", "ftp://host", "sqlite:///mlflow.db"]
)
def test_stores_that_mlflow_refuses_are_bad_input(tmp_path: Path, uri: str) -> None:
    with pytest.raises(InputError, match=r"sqlite:////absolute/path/mlflow\.db") as caught:
        MlflowView.open_or_fail(uri, StudyFolder(tmp_path), study="s", artifact_root=tmp_path)
    assert repr(uri) in str(caught.value)


@pytest.mark.parametrize("uri", ["http://user:secret@127.0.0.1:9", "http://no.such.host.invalid:5000"])
def test_an_unreachable_server_is_an_environment_problem_at_once(tmp_path: Path, uri: str) -> None:
    with pytest.raises(EnvironmentProblem, match="no answer") as caught:
        MlflowView.open_or_fail(uri, StudyFolder(tmp_path), study="s", artifact_root=tmp_path)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_an_environment_problem(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database" * 100)
    with pytest.raises(EnvironmentProblem, match=r"tracking\.uri sqlite"):
        MlflowView.open_or_fail(
            f"sqlite:///{tmp_path / 'mlflow.db'}", StudyFolder(tmp_path), study="s", artifact_root=tmp_path
        )


def test_nothing_is_written_beside_the_working_directory(tracked: TrackedStudy, tmp_path: Path) -> None:
    tracked.view.finish(done(tracked))
    assert sorted(entry.name for entry in Path.cwd().iterdir()) == ["study"]
    assert setting_of(RIGHT) is not None
