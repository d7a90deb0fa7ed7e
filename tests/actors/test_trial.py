"""A trial keeps what it measured, names what killed it, and leaves no server of unknown health."""

from __future__ import annotations

import time
from dataclasses import replace

from trial_builders import WORKLOAD, cell, job, launch

from actors.engines.engine import Engine
from actors.load.workload import Workload
from actors.trial import run_trial
from results.failures import Failure
from results.observations import CellObservation, LaunchObservation
from search_spaces.config import EngineConfig, Triple

CRASH = Failure(phase="measure", kind="crash", message="signal 9", log_tail="the end")
CLIENT = Failure(phase="measure", kind="client", message="all requests failed")


class ScriptedEngine:
    """Answers `apply` and `failure_now` as told and notes what is done to it."""

    def __init__(self, applied: LaunchObservation | Failure, death: Failure | None = None) -> None:
        self.applied, self.death, self.closed = applied, death, 0

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        return self.applied

    @property
    def base_url(self) -> str:
        return "http://127.0.0.1:1"

    def failure_now(self) -> Failure | None:
        return self.death

    def log_tail(self, max_bytes: int = 65536) -> str:
        return "x" * 5000 + "log"

    def close(self) -> None:
        self.closed += 1


class ScriptedLoad:
    def __init__(self, warm: Failure | None = None, failure: Failure | None = None) -> None:
        self.warm, self.failure = warm, failure

    def warm_up(self, engine: Engine, workload: Workload) -> Failure | None:
        time.sleep(0.05)
        return self.warm

    def measure(self, engine: Engine, workload: Workload) -> tuple[tuple[CellObservation, ...], Failure | None]:
        assert workload is WORKLOAD
        return (cell(),), self.failure


def test_a_good_trial_keeps_its_server() -> None:
    engine = ScriptedEngine(launch())
    outcome = run_trial(engine, job(), ScriptedLoad())
    assert outcome.failure is None
    assert outcome.launch is engine.applied
    assert [item.concurrency for item in outcome.cells] == [1]
    assert outcome.finished_at_unix_s >= outcome.started_at_unix_s
    assert outcome.warm_up_s is not None
    assert 0.05 <= outcome.warm_up_s < 0.5
    assert engine.closed == 0


def test_requests_that_a_switched_server_refuses_for_its_room_are_a_finding() -> None:
    class Refusing(ScriptedLoad):
        def measure(self, engine: Engine, workload: Workload) -> tuple[tuple[CellObservation, ...], Failure | None]:
            seen = cell()
            refused = replace(seen.rows[0], error="HTTP 400: longer than the model's context length (512 tokens)")
            return (replace(seen, rows=(refused, *seen.rows[1:])),), None

    room = Triple(num_steps=7, eagle_topk=8, num_draft_tokens=32)
    switched = replace(launch(), switch_s=0.3, pools=room)
    (finding,) = run_trial(ScriptedEngine(switched), job(), Refusing()).findings
    assert finding.startswith("a switched server refused requests for their length")
    assert run_trial(ScriptedEngine(launch()), job(), Refusing()).findings == ()


def test_a_server_that_does_not_start_is_the_outcome() -> None:
    failure = Failure(phase="ready", kind="timeout", message="not ready within 5 s")
    engine = ScriptedEngine(failure)
    outcome = run_trial(engine, job(), ScriptedLoad())
    assert (outcome.failure and outcome.failure.kind, outcome.launch, outcome.cells) == ("timeout", None, ())
    assert outcome.warm_up_s is None
    # the tail of the log is added when the failure has none
    assert outcome.failure is not None
    assert outcome.failure.log_tail.endswith("log")
    assert len(outcome.failure.log_tail) == 4096
    assert engine.closed == 1


def test_a_death_while_measuring_keeps_the_cells_before_it() -> None:
    engine = ScriptedEngine(launch(), death=CRASH)
    outcome = run_trial(engine, job(), ScriptedLoad(failure=CRASH))
    assert outcome.failure == CRASH
    assert len(outcome.cells) == 1
    assert engine.closed == 1


def test_a_server_that_answers_nobody_while_warming_up_is_stopped() -> None:
    engine = ScriptedEngine(launch())
    outcome = run_trial(engine, job(), ScriptedLoad(warm=CLIENT))
    assert outcome.failure is not None
    assert outcome.failure.kind == "client"
    assert outcome.cells == ()
    assert engine.closed == 1
