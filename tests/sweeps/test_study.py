"""The study on a real SQLite storage: what is stored, what is refused, how trials end, what samplers may propose."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_doubles import SMALL, SPACE, fail, resolve, setting, study_in, succeed
from trial_builders import job

from results.failures import Failure, Kind
from results.records import TrialRecord
from search_spaces.config import EngineConfig
from search_spaces.errors import EnvironmentProblem, InputError
from search_spaces.space import SearchSpace
from sweeps.dimensions import contains, dimensions_of, params_of, setting_of
from sweeps.ledger import Ledger
from sweeps.legal_space import Candidate, LegalSpace
from sweeps.recording import record_of
from sweeps.samplers import SAMPLERS, derive_seed
from sweeps.storage_errors import PAUSES_S
from sweeps.study import SearchStudy, distribution_of
from sweeps.study_trial import StudyTrial
from sweeps.tasks import search_task

LEGAL = LegalSpace(SPACE, resolve)
SMALL_LEGAL = LegalSpace(SMALL, resolve)


def trials_of(study: SearchStudy) -> list[tuple[int, str]]:
    return [(trial.number, trial.state) for trial in study.trials()]


def config_of(trial: StudyTrial) -> EngineConfig:
    assert trial.setting is not None
    candidate = LEGAL.candidate(trial.setting)
    assert isinstance(candidate, Candidate), candidate
    return candidate.config


def record_trial(trial: StudyTrial, failure: Failure | None = None) -> TrialRecord:
    task = search_task(trial, config_of(trial))
    begun = job(task.trial_id)
    return record_of("s", task, succeed(begun) if failure is None else fail(begun, failure))


def measure(study: SearchStudy, ledger: Ledger, trial: StudyTrial, value: float) -> None:
    ledger.add(record_trial(trial))
    study.tell_value(trial.number, value, {})


# --- what is stored


def test_the_space_is_stored_as_plain_values_and_read_back(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study = study_in(tmp_path, Ledger())
        first = study.ask()
        study.tell_value(first.number, 1.0, {"trial_id": "t0000-a1", "effective": "e"})
        again = study_in(tmp_path, Ledger())
        second = again.ask()
    stored = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}").trials[0]
    assert first.setting is not None
    assert stored.params == params_of(first.setting)
    assert stored.params["layout"] in ("default", "0,3,7")
    assert stored.user_attrs == {"trial_id": "t0000-a1", "effective": "e"}
    assert again.trials()[0].setting == first.setting
    assert second.number == 1


def test_whole_numbers_in_equal_steps_keep_their_order() -> None:
    assert distribution_of("n", (3, 1, 2)) == optuna.distributions.IntDistribution(1, 3)
    assert distribution_of("n", (8, 4)) == optuna.distributions.IntDistribution(4, 8, step=4)
    assert distribution_of("n", (2, 4, 8)) == optuna.distributions.CategoricalDistribution((2, 4, 8))
    assert distribution_of("n", (None, 3)) == optuna.distributions.CategoricalDistribution((None, 3))
    assert distribution_of("n", (True, False)) == optuna.distributions.CategoricalDistribution((True, False))
    with pytest.raises(InputError, match=r"space\.flag\.x: \[1, True\] holds values that a study cannot tell apart"):
        distribution_of("flag.x", (1, True))


def test_settings_and_parameters_are_each_others_inverse() -> None:
    space = SearchSpace(
        layout=("default", "0,3"),
        num_steps=(None, 3),
        eagle_topk=(None, 1),
        num_draft_tokens=(None, 4),
        tp_size=(1, 2),
        flags=(("attention_backend", ("fa3", "triton")), ("page_size", (1, 64))),
    )
    everything = list(space.settings())
    assert [setting_of(params_of(item)) for item in everything] == everything
    assert all(contains(space, item) for item in everything)
    assert "flag.page_size" in dimensions_of(space)
    assert not contains(SPACE, everything[0])
    assert not contains(SPACE, setting(tokens=5))


# --- what is refused


def test_a_changed_space_is_refused_with_the_difference_and_nothing_is_written(tmp_path: Path) -> None:
    study_in(tmp_path, Ledger())
    wider = SearchSpace(
        layout=SPACE.layout,
        num_steps=(1, 2, 3, 5),
        eagle_topk=SPACE.eagle_topk,
        num_draft_tokens=SPACE.num_draft_tokens,
        tp_size=SPACE.tp_size,
    )
    with pytest.raises(InputError) as caught:
        study_in(tmp_path, Ledger(), wider)
    assert str(caught.value) == (
        "study 's': space.num_steps was [1, 2, 3] and is now [1, 2, 3, 5]; give another `study` name, such as s-2"
    )
    assert study_in(tmp_path, Ledger()).trials() == ()


def test_another_target_or_direction_is_refused(tmp_path: Path) -> None:
    study_in(tmp_path, Ledger())
    with pytest.raises(InputError, match=r'target was "T" and is now "U"'):
        study_in(tmp_path, Ledger(), identity={"target": "U"})
    with pytest.raises(InputError, match=r"objective.direction was maximize and is now minimize"):
        study_in(tmp_path, Ledger(), direction="minimize")


def test_a_foreign_study_is_refused(tmp_path: Path) -> None:
    made = optuna.create_study(storage=f"sqlite:///{tmp_path / 'study.db'}", study_name="s", direction="maximize")
    made.ask()
    with pytest.raises(InputError, match="was not made by specsweep"):
        study_in(tmp_path, Ledger())


def test_unusable_storage_and_samplers_are_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"search\.storage: sqlite:.*unable to open database file"):
        study_in(tmp_path / "missing", Ledger())
    with pytest.raises(InputError, match=r"search\.sampler: 'best' is unknown; legal: auto, brute_force, cmaes, gp"):
        study_in(tmp_path, Ledger(), sampler="best")
    with pytest.raises(EnvironmentProblem, match="cmaes needs the package cmaes"):
        study_in(tmp_path, Ledger(), sampler="cmaes")


# --- a storage that does not answer


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


# --- how trials end


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


# --- what samplers may propose


def walk(study: SearchStudy, ledger: Ledger) -> list[EngineConfig]:
    """Ask and measure until nothing in the small space is open, two at a time."""
    configs: list[EngineConfig] = []
    running: list[tuple[StudyTrial, EngineConfig]] = []
    while running or any(ledger.is_open(config) for config in SMALL_LEGAL.configs):
        while len(running) < 2 and any(ledger.is_open(config) for config in SMALL_LEGAL.configs):
            trial = study.ask()
            config = config_of(trial)
            ledger.start(config)
            running.append((trial, config))
            configs.append(config)
        trial, config = running.pop(0)
        ledger.end(config)
        assert config.triple is not None
        measure(study, ledger, trial, float(config.triple.num_steps))
    return configs


@pytest.mark.parametrize("sampler", sorted(SAMPLERS.keys() - {"cmaes", "gp"}))
def test_every_sampler_visits_each_server_once_and_no_illegal_setting(sampler: str) -> None:
    ledger = Ledger()
    configs = walk(study_in(None, ledger, SMALL, sampler=sampler), ledger)
    assert [str(config.triple) for config in sorted(configs, key=lambda config: str(config.triple))] == [
        "(1,1,2)",
        "(1,4,2)",
        "(1,4,4)",
        "(2,1,3)",
        "(2,4,4)",
        "(2,4,8)",
    ]


def test_repeats_launch_each_server_that_often() -> None:
    ledger = Ledger(repeats=2)
    configs = walk(study_in(None, ledger, SMALL), ledger)
    assert sorted(configs.count(config) for config in SMALL_LEGAL.configs) == [2] * 6


@pytest.mark.parametrize("switched", [True, False])
def test_the_tp_size_that_ran_last_is_kept_while_servers_are_switched(switched: bool) -> None:
    space = replace(SPACE, tp_size=(1, 2))
    ledger = Ledger()
    study = study_in(None, ledger, space, seed=1)
    now = [switched]
    study.stay_on_tp(lambda: now[0])
    legal = LegalSpace(space, resolve)

    def sizes(count: int) -> list[int]:
        found = []
        for _ in range(count):
            asked = study.ask()
            assert asked.setting is not None
            candidate = legal.candidate(asked.setting)
            assert isinstance(candidate, Candidate)
            ledger.start(candidate.config)
            found.append(candidate.config.tp_size)
        return found

    assert (len(set(sizes(8))) == 1) is switched
    # once switching is not trusted any more, every trial is a launch
    now[0] = False
    assert set(sizes(8)) == {1, 2}


def test_the_gaussian_process_sampler_works_through_the_wrapper() -> None:
    ledger = Ledger()
    study = study_in(None, ledger, sampler="gp")
    seen = set()
    for _ in range(6):
        trial = study.ask()
        seen.add(config_of(trial).identity)
        measure(study, ledger, trial, 1.0)
    assert len(seen) == 6


def test_a_resumed_study_does_not_repeat_its_first_trials(tmp_path: Path) -> None:
    seeds = {derive_seed(7, trials) for trials in range(1000)}
    assert len(seeds) == 1000
    assert derive_seed(7, 0) == 7
    first = [study_in(tmp_path, Ledger()).ask().setting for _ in range(4)]
    # with one seed all four would be the same setting
    assert len(set(first)) > 1


@pytest.mark.parametrize(("kind", "low", "high"), [("oom", 0, 6), ("timeout", 8, 30)])
def test_tpe_learns_from_configurations_that_failed_and_not_from_lost_ones(kind: Kind, low: int, high: int) -> None:
    """Whatever runs under the default layout fails. It is a quarter of the space: 7 of 30 trials by chance alone."""
    space = SearchSpace(
        layout=("default", "0,3,7", "1,3,7", "2,3,7"),
        num_steps=(1, 2, 3, 4, 5, 6),
        eagle_topk=(1,),
        num_draft_tokens=(2,),
        tp_size=(1, 2, 4, 8),
    )
    study = study_in(None, Ledger(), space, sampler="tpe", seed=1)
    layouts = []
    for _ in range(40):
        trial = study.ask()
        assert trial.setting is not None
        layouts.append(trial.setting.layout)
        if trial.setting.layout == "default":
            study.tell_failure(trial.number, Failure(phase="launch", kind=kind, message="failed"), {})
        else:
            study.tell_value(trial.number, 1.0, {})
    assert low <= layouts[10:].count("default") <= high


SPACES = st.builds(
    SearchSpace,
    layout=st.just(("default", "0,3,7")),
    num_steps=st.sets(st.integers(1, 4), min_size=1).map(tuple),
    eagle_topk=st.sets(st.sampled_from([1, 2, 4]), min_size=1).map(tuple),
    num_draft_tokens=st.sets(st.sampled_from([2, 4, 5, 8]), min_size=1).map(tuple),
    tp_size=st.sets(st.sampled_from([1, 2]), min_size=1).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(space=SPACES, data=st.data())
def test_the_nearest_candidate_is_accepted_and_nearest(space: SearchSpace, data: Any) -> None:
    import random

    legal = LegalSpace(space, resolve)
    everything = list(space.settings())
    wanted = data.draw(st.sampled_from(everything))
    closed = set(data.draw(st.lists(st.sampled_from(everything), max_size=4)))
    shut = {item.config.identity for item in (legal.candidate(x) for x in closed) if isinstance(item, Candidate)}
    found = legal.nearest(wanted, lambda config: config.identity not in shut, random.Random(0))
    accepted = [config for config in legal.configs if config.identity not in shut]
    if found is None:
        assert not accepted
        return
    assert found.config.identity not in shut
    assert legal.candidate(found.setting) == found
    mine = legal.candidate(wanted)
    if isinstance(mine, Candidate) and mine.config.identity not in shut:
        assert found.setting == wanted
