"""The MLflow store: one that fails later, is shared by several studies, or cannot be used at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from result_builders import setting_of
from tracked_study import RIGHT, TrackedStudy, done, start

from results.mlflow_view import MlflowView
from results.store import StudyFolder
from search_spaces.errors import EnvironmentProblem, InputError


def test_an_mlflow_that_fails_later_stops_nothing_and_is_mended_by_sync(
    tracked: TrackedStudy, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __getattr__(self, name: str):
            raise ConnectionError("the server\nhas gone")

    good = tracked.view._runs.client
    tracked.view._runs.client = Broken()
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
    tracked.view._runs.client = good
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
    tracked.view._runs.client.delete_experiment(tracked.view._runs.experiment_id)
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
