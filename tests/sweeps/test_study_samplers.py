"""What a study's samplers may propose and learn from, and the nearest legal candidate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_doubles import SMALL, SPACE, fail, resolve, study_in, succeed
from trial_builders import job

from results.failures import Failure, Kind
from results.records import TrialRecord
from search_spaces.config import EngineConfig
from search_spaces.space import SearchSpace
from sweeps.ledger import Ledger
from sweeps.legal_space import Candidate, LegalSpace
from sweeps.recording import record_of
from sweeps.samplers import SAMPLERS, derive_seed
from sweeps.study import SearchStudy
from sweeps.study_trial import StudyTrial
from sweeps.tasks import search_task

LEGAL = LegalSpace(SPACE, resolve)
SMALL_LEGAL = LegalSpace(SMALL, resolve)


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
