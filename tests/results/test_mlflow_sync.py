"""`sync` makes of the records what live runs gave, can be repeated, and keeps every speedup right."""

from __future__ import annotations

import hashlib
import json

import pytest
from result_builders import config, record, summary
from tracked_study import RIGHT, TrackedStudy, baseline, done, start

from results.mlflow_fields import speedups_of, throughput_baselines
from results.mlflow_runs import DIGEST_TAG


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
        tracked.view._runs.client.delete_run(run.info.run_id)
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


def test_the_runs_of_a_study_made_before_a_record_got_more_fields_are_kept(tracked: TrackedStudy) -> None:
    """An earlier version wrote the record without them, and the hash of that file into the run."""
    done(tracked)
    path = tracked.folder.trial_file("t1", "record.json")
    content = json.loads(path.read_bytes())
    for field in ("warm_up_s", "ended_s"):
        del content[field]
    del content["launch"]["extra_starts"]
    path.write_text(json.dumps(content, indent=2) + "\n")
    records = tracked.folder.records()
    tracked.view.finish(records[0])
    (run,) = tracked.runs()
    client = tracked.view._runs.client
    client.set_tag(run.info.run_id, DIGEST_TAG, hashlib.sha256(path.read_bytes()).hexdigest())
    client.set_tag(run.info.run_id, "mlflow.note.content", "the one to show")
    report = tracked.reopened().sync(records)
    assert (report.written, report.unchanged, report.removed) == ((), ("t1",), 0)
    (kept,) = tracked.runs()
    assert kept.info.run_id == run.info.run_id
    assert kept.data.tags["mlflow.note.content"] == "the one to show"


def test_an_attempt_that_was_killed_earlier_stays_where_the_run_is_written_anew(tracked: TrackedStudy) -> None:
    start(tracked.view, started_at_unix_s=1_700_000_000.0)
    tracked.view.kill("t1")
    start(tracked.view, started_at_unix_s=1_700_000_100.0)
    report = tracked.reopened().sync([done(tracked, at_s=1_700_000_100.0)])
    assert (report.written, report.removed) == (("t1",), 1)
    assert [run.info.status for run in tracked.runs()] == ["KILLED", "FINISHED"]
