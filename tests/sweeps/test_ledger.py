"""What the ledger holds to be settled, open or too large."""

from __future__ import annotations

from search_doubles import fail, setting, succeed
from trial_builders import config, job

from results.failures import Failure, Kind
from results.records import Role, TrialRecord
from search_spaces.config import EngineConfig
from sweeps.ledger import Ledger
from sweeps.recording import record_of
from sweeps.tasks import Task


def record(
    config: EngineConfig, kind: Kind | None = None, *, role: Role = "search", base: str = "t0000"
) -> TrialRecord:
    task = Task(
        base=base,
        role=role,
        setting=setting(),
        config=config,
        trial=None,
        attempt=1,
        first_attempt=1,
        retry_of=None,
    )
    begun = job(task.trial_id)
    failure = None if kind is None else Failure(phase="launch", kind=kind, message="why")
    return record_of("s", task, succeed(begun) if failure is None else fail(begun, failure))


def test_a_measured_configuration_is_answered_after_its_repeats() -> None:
    ledger = Ledger(repeats=2)
    first = record(config(3))
    ledger.add(first)
    assert ledger.answer(config(3)) is None
    assert ledger.is_open(config(3))
    assert not ledger.is_unseen(config(3))
    ledger.add(record(config(3), base="t0001"))
    assert ledger.answer(config(3)) is first
    assert not ledger.is_open(config(3))
    assert ledger.is_unseen(config(2))


def test_running_launches_count() -> None:
    ledger = Ledger()
    ledger.start(config(3))
    assert ledger.is_running(config(3))
    assert not ledger.is_open(config(3))
    assert ledger.answer(config(3)) is None
    ledger.end(config(3))
    assert ledger.is_unseen(config(3))


def test_a_failure_of_the_configuration_settles_it_and_one_of_the_cluster_does_not() -> None:
    ledger = Ledger(
        [record(config(1), "crash"), record(config(2), "lost_actor"), record(config(3), "no_engine")], repeats=3
    )
    settled = ledger.answer(config(1))
    assert settled is not None
    assert settled.failure is not None
    assert ledger.is_unseen(config(2))
    assert ledger.is_unseen(config(3))
    ledger.give_up(config(2))
    assert not ledger.is_open(config(2))


def test_a_success_is_the_better_answer() -> None:
    good = record(config(3), base="t0001")
    ledger = Ledger([record(config(3), "crash"), good])
    assert ledger.answer(config(3)) is good


def test_baselines_answer_nothing() -> None:
    assert Ledger([record(config(3), role="baseline")]).answer(config(3)) is None
    assert Ledger([record(config(3), role="suspect")]).answer(config(3)) is not None


def test_what_needs_at_least_as_much_memory_as_a_tree_that_had_too_little_is_closed() -> None:
    ledger = Ledger([record(config(5, 4, 32), "oom")])
    for larger in ((5, 8, 64), (6, 4, 32), (5, 4, 33)):
        assert ledger.larger_than_memory(config(*larger)) == config(5, 4, 32)
        assert not ledger.is_open(config(*larger))
    for other in (config(5, 4, 16), config(4, 8, 64), config(5, 8, 64, tp_size=2)):
        assert ledger.larger_than_memory(other) is None
        assert ledger.is_open(other)
