"""Resume: records against the study, on values and on a real study, repeated at every point it can be killed at."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_doubles import fail, setting, study_in, succeed
from trial_builders import config, job

from results.failures import Failure, Kind
from results.objective import Objective
from results.records import TrialRecord
from search_spaces.errors import InputError
from sweeps.ledger import Ledger
from sweeps.recording import record_of
from sweeps.resume import MAX_ATTEMPTS, reconcile
from sweeps.session import recover
from sweeps.study_trial import State, StudyTrial
from sweeps.tasks import Task, search_task


def trial(number: int, state: State = "running", **attrs: int) -> StudyTrial:
    return StudyTrial(number=number, state=state, setting=setting(), value=None, attrs=attrs)


def record(of: StudyTrial, kind: Kind | None = None, *, attempt: int | None = None) -> TrialRecord:
    task = search_task(of, config(3))
    if attempt is not None:
        task = Task(**{**task.__dict__, "attempt": attempt})
    begun = job(task.trial_id)
    failure = None if kind is None else Failure(phase="launch", kind=kind, message="why")
    return record_of("s", task, succeed(begun) if failure is None else fail(begun, failure))


def test_recorded_but_not_told_is_told() -> None:
    first, second = trial(0), trial(1)
    found = reconcile([first, second], [record(first), record(second, "crash")], retries=2)
    assert [(item.number, rec.trial_id) for item, rec in found.tell] == [(0, "t0000-a1"), (1, "t0001-a1")]
    assert found.stale == ()


def test_running_without_a_record_is_stale_and_counts() -> None:
    found = reconcile([trial(0, "complete"), trial(1), trial(2, attempt=3)], [record(trial(0))], retries=2)
    assert [(stale.trial.number, stale.attempt, stale.again) for stale in found.stale] == [(1, 1, True), (2, 3, True)]
    assert found.tell == ()


def test_a_trial_that_its_driver_never_survives_is_given_up() -> None:
    (stale,) = reconcile([trial(0, attempt=MAX_ATTEMPTS)], [], retries=2).stale
    assert not stale.again


def test_the_latest_attempt_decides() -> None:
    lost = trial(0)
    # two lost attempts of three: run it again as the third
    records = [record(lost, "lost_actor"), record(lost, "lost_actor", attempt=2)]
    (stale,) = reconcile([lost], records, retries=2).stale
    assert stale.attempt == 2
    # all three are lost: that is its result
    ((told, last),) = reconcile([lost], [*records, record(lost, "lost_node", attempt=3)], retries=2).tell
    assert (told.number, last.attempt) == (0, 3)
    # lost at first, then measured
    ((_, last),) = reconcile([lost], [*records[:1], record(lost, attempt=2)], retries=2).tell
    assert last.ok


def test_records_of_another_storage_are_refused() -> None:
    with pytest.raises(InputError, match=r"search\.storage: the records know trial 4 but the storage holds 1 trials"):
        reconcile([trial(0)], [record(trial(4))], retries=2)


def test_waiting_and_finished_trials_are_left_alone() -> None:
    states: list[State] = ["waiting", "complete", "pruned", "fail"]
    found = reconcile([trial(i, state) for i, state in enumerate(states)], [], retries=2)
    assert (found.tell, found.stale) == ((), ())


def test_recovery_on_a_real_study_is_exact_once(tmp_path: Path) -> None:
    study = study_in(tmp_path, Ledger())
    done, recorded, lost = study.ask(), study.ask(), study.ask()
    study.tell_value(done.number, 5.0, {})
    records = (record(done), record(recorded))
    for _ in range(2):
        # the second time is a driver that died after having recovered
        study = study_in(tmp_path, Ledger(records))
        recovered = recover(study, records, Objective(), retries=2)
    assert (recovered.told, recovered.again) == ((), ())
    trials = study.trials()
    assert [item.state for item in trials] == ["complete", "complete", "fail", "waiting"]
    # 82 tokens in 8/6 s
    assert trials[1].value == pytest.approx(61.5)
    assert trials[1].attrs["trial_id"] == "t0001-a1"
    assert trials[2].attrs["reason"] == "stale"
    assert (trials[3].setting, trials[3].attempt, trials[3].retry_of) == (lost.setting, 2, 2)


def test_recovery_says_what_it_did(tmp_path: Path) -> None:
    study = study_in(tmp_path, Ledger())
    recorded, _ = study.ask(), study.ask()
    recovered = recover(study, (record(recorded),), Objective(), retries=2)
    assert (recovered.told, recovered.again, recovered.given_up) == ((0,), (1,), ())
    assert str(recovered) == "trials of a driver that died: 1 told from their records, 1 to be run again"
