"""The trials of a study: how they end, what is asked again after a loss, what is enqueued."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from search_doubles import setting, study_in, trials_of

from results.failures import Failure
from sweeps.ledger import Ledger


def test_how_a_trial_ends_decides_what_the_search_learns() -> None:
    study = study_in(None, Ledger())
    for kind in ("oom", "bad_config", "crash", "lost_actor", "timeout", "no_metric"):
        trial = study.ask()
        study.tell_failure(trial.number, Failure(phase="launch", kind=kind, message=f"because of {kind}"), {})  # type: ignore[arg-type]
    states = {trial.attrs["reason"]: trial.state for trial in study.trials()}
    assert states == {
        "oom": "pruned",
        "bad_config": "pruned",
        "crash": "pruned",
        "lost_actor": "fail",
        "timeout": "fail",
        "no_metric": "fail",
    }
    assert study.trials()[0].attrs["message"] == "because of oom"
    assert study.best is None
    trial = study.ask()
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="is not a value to tell"):
            study.tell_value(trial.number, value, {})
    assert study.trials()[-1].state == "running"


def test_a_lost_trial_is_failed_and_enqueued_once_with_its_count(tmp_path: Path) -> None:
    study = study_in(tmp_path, Ledger())
    lost = study.ask()
    del study
    study = study_in(tmp_path, Ledger())
    (stale,) = study.trials()
    assert stale.state == "running"
    # killed between the two writes: the second try must not enqueue again
    study._enqueue(stale.setting, {"attempt": 2, "retry_of": 0, "role": "search"})  # type: ignore[arg-type]
    study.requeue(stale, attempt=1, reason="stale")
    assert trials_of(study) == [(0, "fail"), (1, "waiting")]
    assert study.trials()[0].was_lost
    again = study.ask()
    assert (again.number, again.setting, again.attempt, again.retry_of) == (1, lost.setting, 2, 0)
    study.requeue(again, attempt=2, reason="stale")
    assert study.ask().attempt == 3


def test_a_trial_that_died_while_being_asked_is_failed_alone(tmp_path: Path) -> None:
    study = study_in(tmp_path, Ledger())
    raw = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")
    raw.ask({"tp_size": optuna.distributions.IntDistribution(1, 1)})
    (half,) = study.trials()
    assert half.setting is None
    study.requeue(half, attempt=1, reason="stale")
    assert trials_of(study) == [(0, "fail")]


def test_enqueued_settings_come_first_and_once(tmp_path: Path) -> None:
    study = study_in(tmp_path, Ledger())
    wanted = setting(steps=2, tokens=8)
    assert study.enqueue(wanted, role="suspect", label="suspect")
    assert not study.enqueue(wanted, role="suspect", label="suspect")
    assert study.waiting == 1
    trial = study.ask()
    assert (trial.setting, trial.role) == (wanted, "suspect")
    assert study.waiting == 0
    again = study_in(tmp_path, Ledger())
    assert not again.enqueue(wanted, role="suspect", label="suspect")
    # what disappoints may be another setting in a resumed study
    assert again.enqueue(setting(steps=1, tokens=2), role="suspect", label="suspect")


def test_an_impossible_enqueued_trial_is_failed_and_the_next_one_taken(tmp_path: Path) -> None:
    study = study_in(tmp_path, Ledger())
    raw = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")
    raw.enqueue_trial({"layout": "9,9,9"})
    trial = study.ask()
    assert trials_of(study) == [(0, "fail"), (1, "running")]
    assert trial.number == 1
