"""An isolation in a study's folder: what is run, what counts, what is kept and reported."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from isolation_doubles import SUSPECT, ProbingPool, isolation, measure, run, server, study_place
from search_doubles import fail, succeed

from actors.job import TrialJob, TrialOutcome
from results.failures import Failure
from results.isolation_report import kept_sentences
from sweeps.cli import main
from sweeps.home import StudyPlace
from sweeps.isolation_view import show_plan
from sweeps.report_view import print_report, print_verdicts
from sweeps.study_report import report_of

place = pytest.fixture(study_place)


def test_only_what_is_missing_is_run_once_and_the_verdicts_are_kept(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    found = isolation(place)
    plan = found.plan()
    # both ends are at tp 2, so the reference is held at tp 1, where nothing is split
    assert (plan.ends.suspect, plan.ends.reference, plan.ends.chosen) == (SUSPECT, server(tp=1), server())
    assert [item.state for item in plan.corners].count("measured") == 2
    assert len(plan.corners) == 8
    pool = ProbingPool()
    done = run(found, pool)
    assert done is not None
    launched = [job.config for job in pool.launched if job.probe_tokens is None]
    assert len(launched) == len(set(launched)) == 6
    assert [config.tp_size for config in launched] == [1, 1, 1, 1, 2, 2]
    job = pool.launched[0]
    assert (job.workload.temperature, job.workload.concurrency) == (0.0, (1,))
    assert pool.probed == [SUSPECT, replace(SUSPECT, tp_size=1)]
    isolated = found.conclude(done)
    assert {r.role for r in place.records.records()} == {"search", "corner"}
    assert all(corner.pairs for corner in isolated.case.corners.values())
    assert [feed.report is not None and feed.report.layout for feed in isolated.case.feeds] == [(2, 16, 29)] * 2
    kept = json.loads((place.folder / "isolate.json").read_text())
    assert [row["verdict"] for row in kept["verdicts"]] == ["no", "no", "no"]
    # a second look needs no server: corners and probes are kept
    again = isolation(place).plan()
    assert not again.needs_servers
    assert [feed.sentence() for feed in again.feeds] == [feed.sentence() for feed in isolated.case.feeds]
    report = report_of(place)
    assert report.verdicts == kept_sentences(place.records) == tuple(kept["sentences"])
    assert "specsweep isolate" not in report.next_step
    shown = io.StringIO()
    print_report(report, shown)
    assert "No cause found" not in shown.getvalue()
    print_verdicts(report, shown)
    assert shown.getvalue().partition("\nVerdict:\n")[2].replace("\n", " ").strip() == " ".join(kept["sentences"])


def test_a_corner_that_dies_of_its_setting_is_not_launched_again(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")

    def dying(job: TrialJob) -> TrialOutcome:
        if job.config.tp_size == 1:
            return fail(job, Failure(phase="launch", kind="oom", message="CUDA out of memory"))
        return succeed(job)

    found = isolation(place, probe=False)
    done = run(found, ProbingPool(run=dying))
    assert done is not None
    assert [item.state for item in done.corners].count("failed") == 4
    explanation = found.conclude(done).explanation
    parallelism = explanation.cause("parallelism")
    assert parallelism.verdict == "undecided"
    assert "CUDA out of memory" in parallelism.evidence
    # the other two are split at tp 2 all the same
    assert explanation.cause("layout").share is not None
    assert not isolation(place, probe=False).plan().needs_servers


def test_a_trial_that_ended_early_is_measured_in_full_where_that_can_be_had(place: StudyPlace) -> None:
    """A search dismisses slow settings after a few prompts, and those are the corners with the bad layout."""
    early = "dominated after 1 prompts"
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    measure(place, server((2, 16, 29), 3), "t0002", stopped=early)
    found = isolation(place, probe=False)
    plan = found.plan()
    (cut,) = [item for item in plan.corners if item.measured.stopped]
    assert (cut.state, cut.measured.config, len(cut.measured.pairs)) == ("to run", server((2, 16, 29), 3), 1)
    assert "t0002-a1 (dominated after 1 prompts)" in show_plan(plan)
    pool = ProbingPool()
    done = run(found, pool)
    assert done is not None
    assert server((2, 16, 29), 3) in [job.config for job in pool.launched]
    attribution = found.conclude(done).attribution
    assert attribution is not None
    assert attribution.prompts == 2
    assert not isolation(place, probe=False).plan().needs_servers


@pytest.mark.parametrize("kind", ["oom", "not counted"])
def test_a_trial_that_ended_early_counts_where_nothing_better_can_be_had(place: StudyPlace, kind: str) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    measure(place, server((2, 16, 29), 3), "t0002", stopped="dominated after 1 prompts")

    def failing(job: TrialJob) -> TrialOutcome:
        if job.config != server((2, 16, 29), 3):
            return succeed(job)
        if kind == "oom":
            return fail(job, Failure(phase="launch", kind="oom", message="CUDA out of memory"))
        outcome = succeed(job)
        warm = tuple(replace(row, cached_tokens=row.prompt_tokens) for row in outcome.cells[0].rows)
        return replace(outcome, cells=(replace(outcome.cells[0], rows=warm),))

    # whoever may launch nothing concludes on what there is
    before = isolation(place, probe=False)
    assert [len(c.pairs) for c in before.conclude(before.plan()).case.corners.values() if c.stopped] == [1]
    done = run(isolation(place, probe=False), ProbingPool(run=failing))
    assert done is not None
    assert [item.state for item in done.corners] == ["measured"] * 8
    assert [len(item.measured.pairs) for item in done.corners if item.measured.stopped] == [1]
    assert not isolation(place, probe=False).plan().needs_servers


@pytest.mark.parametrize("command", [["isolate", "case", "--dry-run"], ["probe", "case"], ["trace", "case"]])
def test_a_draft_that_changed_is_not_mixed_into_the_study(
    place: StudyPlace, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    monkeypatch.setenv("SPECSWEEP_HOME", str(place.home))
    config = Path(place.read_spec().draft) / "config.json"
    config.write_text(config.read_text().replace("500000", "10000"))
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert "study 'case': draft: " in shown
    assert "is not the checkpoint any more that the study was made with" in shown
    assert shown.count("\n") == 1


def test_a_report_without_verdicts_stays_as_it_was(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    (place.folder / "isolate.json").write_text("{broken")
    assert report_of(place).verdicts == ()
