"""The order in which waiting tasks are taken."""

from __future__ import annotations

import pytest
from trial_builders import baseline, config

from search_spaces.config import EngineConfig
from sweeps.agenda import Agenda
from sweeps.tasks import FixedTrial, Task, open_tasks


def fixed(base: str, effective: EngineConfig, *, due_after: int = 0, before_its_tp: bool = False) -> tuple[int, Task]:
    trial = FixedTrial(
        base=base,
        role="baseline",
        setting=None,
        config=effective,
        due_after=due_after,
        before_its_tp=before_its_tp,
    )
    ((due, task),) = open_tasks([trial], ())
    return due, task


def base_of(task: Task | None) -> str | None:
    return None if task is None else task.base


def never() -> bool:
    return False


def test_what_is_ready_comes_first_and_what_found_no_room_is_the_next_again() -> None:
    agenda = Agenda([fixed("first", baseline())])
    agenda.add([fixed("a", config(1))[1], fixed("b", config(2))[1]])
    taken = agenda.take(begun=0, search_is_over=never)
    assert taken is not None
    agenda.put_back(taken)
    assert (len(agenda), [task.base for task in agenda.ready]) == (3, ["a", "b"])
    assert [base_of(agenda.take(begun=0, search_is_over=never)) for _ in range(4)] == ["a", "b", "first", None]


def test_a_fixed_trial_waits_for_its_turn_or_the_end_of_the_search() -> None:
    agenda = Agenda([fixed("last", baseline(), due_after=9), fixed("middle", baseline(), due_after=4)])
    assert agenda.take(begun=3, search_is_over=never) is None
    assert base_of(agenda.take(begun=4, search_is_over=never)) == "middle"
    assert agenda.take(begun=4, search_is_over=never) is None
    assert base_of(agenda.take(begun=4, search_is_over=lambda: True)) == "last"


def test_whether_the_search_is_over_is_asked_only_where_it_matters() -> None:
    agenda = Agenda([fixed("due", baseline())])
    agenda.add([fixed("ready", config(1))[1]])
    for base in ("ready", "due", None):
        assert base_of(agenda.take(begun=0, search_is_over=lambda: pytest.fail("asked"))) == base


def test_a_baseline_comes_right_before_the_first_trial_of_its_tp_size() -> None:
    agenda = Agenda([fixed("baseline-tp2", baseline(2), before_its_tp=True)])
    assert agenda.take(begun=5, search_is_over=never) is None
    one, two = fixed("t0000", config(1))[1], fixed("t0001", config(1, tp_size=2))[1]
    assert agenda.first_at_its_tp(one) is one
    assert agenda.first_at_its_tp(two).base == "baseline-tp2"
    assert base_of(agenda.take(begun=5, search_is_over=never)) == "t0001"
    assert agenda.first_at_its_tp(two) is two


def test_what_is_dropped_is_what_is_ready() -> None:
    agenda = Agenda([fixed("last", baseline(), due_after=9)])
    agenda.add([fixed("a", config(1))[1]])
    agenda.drop_ready()
    assert (len(agenda), agenda.ready) == (1, ())
