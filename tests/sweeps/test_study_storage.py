"""A study's storage that does not answer: how long it is waited for, and that nothing is lost or told twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from search_doubles import setting, study_in, trials_of

from results.failures import Failure
from search_spaces.errors import EnvironmentProblem
from sweeps.ledger import Ledger
from sweeps.storage_errors import PAUSES_S
from sweeps.study import SearchStudy


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SearchStudy, list[float], Any]]:
    """A study on SQLite, the pauses it made, and another connection that locks the file until it is closed."""
    study = study_in(tmp_path, Ledger(), url=f"sqlite:///{tmp_path / 'study.db'}?timeout=0.01")
    pauses: list[float] = []
    other = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    monkeypatch.setattr("sweeps.storage_errors.time.sleep", pauses.append)
    yield study, pauses, other
    other.close()


def test_a_storage_that_stays_locked_is_the_environment(locked: tuple[SearchStudy, list[float], Any]) -> None:
    study, pauses, other = locked
    trial = study.ask()
    other.execute("BEGIN EXCLUSIVE")
    failure = Failure(phase="launch", kind="crash", message="why")
    for method in (
        study.ask,
        study.trials,
        lambda: study.waiting,
        lambda: study.best,
        lambda: study.set_attr("a", 1),
        lambda: study.tell_value(trial.number, 1.0, {}),
        lambda: study.tell_failure(trial.number, failure, {}),
        lambda: study.requeue(trial, attempt=1, reason="stale"),
        lambda: study.enqueue(setting(), role="search", label="l"),
    ):
        pauses.clear()
        with pytest.raises(EnvironmentProblem, match=r"^search\.storage: study 's': .*database is locked"):
            method()
        assert pauses == list(PAUSES_S)
    other.execute("ROLLBACK")
    study.tell_value(trial.number, 1.0, {})
    assert trials_of(study) == [(0, "complete")]


def test_a_storage_that_is_locked_for_a_moment_is_waited_for(
    locked: tuple[SearchStudy, list[float], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, _, other = locked
    trial = study.ask()
    monkeypatch.setattr("sweeps.storage_errors.time.sleep", lambda pause_s: other.execute("ROLLBACK"))
    for change in (
        lambda: study.tell_value(trial.number, 2.0, {"trial_id": "t"}),
        lambda: study.set_attr("a", 1),
        lambda: study.enqueue(setting(), role="search", label="l"),
    ):
        other.execute("BEGIN EXCLUSIVE")
        change()
    assert study.attr("a") == 1
    assert [(item.state, item.value) for item in study.trials()] == [("complete", 2.0), ("waiting", None)]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_trial_that_was_half_asked_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """An enqueued one is not lost; what is running is not touched."""
    study = study_in(tmp_path, Ledger())
    running = study.ask()
    wanted = setting(steps=2, tokens=8)
    study.enqueue(wanted, role="suspect", label="suspect")
    real, calls = optuna.storages.RDBStorage.set_trial_param, []

    def set_trial_param(*args: Any) -> None:
        calls.append(args)
        if len(calls) == before + 1:
            raise optuna.exceptions.StorageInternalError("lost")
        real(*args)

    monkeypatch.setattr(optuna.storages.RDBStorage, "set_trial_param", set_trial_param)
    monkeypatch.setattr("sweeps.storage_errors.time.sleep", lambda pause_s: None)
    trial = study.ask()
    assert (trial.setting, trial.role, trial.attempt) == (wanted, "suspect", 1)
    assert [item.number for item in study.trials() if item.state == "running"] == [running.number, trial.number]
    assert study.waiting == 0


def test_what_was_told_although_the_answer_was_lost_is_told_once(tmp_path: Path) -> None:
    study = study_in(tmp_path, Ledger())
    trial = study.ask()
    for _ in range(2):
        study.tell_value(trial.number, 2.0, {"trial_id": "t"})
        study.tell_lost(study.ask().number, "gone")
    assert [item.state for item in study.trials()] == ["complete", "fail", "fail"]
    with pytest.raises(ValueError, match="Cannot tell"):
        study.tell_value(trial.number, 3.0, {})
