"""A study in a real SQLite storage: how its space is stored, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import optuna
import pytest
from search_doubles import SPACE, setting, study_in

from search_spaces.errors import EnvironmentProblem, InputError
from search_spaces.space import SearchSpace
from sweeps.dimensions import contains, dimensions_of, params_of, setting_of
from sweeps.ledger import Ledger
from sweeps.stored_study import distribution_of

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
