"""An isolation that is cut short: by the budget of its sweep, by Ctrl-C; what was done by then is kept."""

from __future__ import annotations

import contextlib
import json
import signal
from dataclasses import dataclass
from typing import Any

import pytest
from isolation_doubles import SUSPECT, ProbingPool, isolation, measure, run, server, study_place
from search_doubles import Events, succeed

from actors.job import TrialJob, TrialOutcome
from sweeps import compose
from sweeps.account import Account
from sweeps.budget import Budget
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest
from sweeps.isolating import isolate_after_sweep
from sweeps.spec import parse_spec
from sweeps.tally import ELAPSED

place = pytest.fixture(study_place)


def test_stopped_in_the_middle_it_goes_on_with_the_rest(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    stop = StopRequest()

    def stopping(job: TrialJob) -> TrialOutcome:
        if len(pool.launched) == 3:
            stop.by = "SIGINT"
        return succeed(job)

    pool = ProbingPool(run=stopping)
    assert run(isolation(place), pool, stop) is None
    before = {r.trial_id for r in place.records.records()}
    assert len(before) == 2 + 3
    later = ProbingPool()
    assert run(isolation(place), later) is not None
    assert len([job for job in later.launched if job.probe_tokens is None]) == 3
    assert before < {r.trial_id for r in place.records.records()}


class Kept:
    """The attributes of a study that a sweep holds open."""

    name = "case"

    def __init__(self) -> None:
        self.attrs: dict[str, Any] = {}

    def attr(self, name: str) -> Any:
        return self.attrs.get(name)

    def set_attr(self, name: str, value: Any) -> None:
        self.attrs[name] = value


@pytest.mark.parametrize(
    ("budget", "corners", "probes"),
    [
        (Budget(launches=5), 3, 0),
        (Budget(launches=8), 6, 0),
        (Budget(launches=9), 6, 1),
        (Budget(launches=10, trials=1), 6, 2),
        (Budget(wall_time_s=100.0), 0, 0),
    ],
)
def test_at_the_end_of_a_sweep_its_budget_holds(place: StudyPlace, budget: Budget, corners: int, probes: int) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    study, beats = Kept(), list[int]()
    study.attrs[ELAPSED] = 100.0
    pool, events = ProbingPool(), Events()
    account = Account(of=study, budget=budget, heartbeat=lambda: beats.append(1))  # type: ignore[arg-type]
    isolate_after_sweep(place.read_spec(), place, pool, events, StopRequest(), may_launch=True, account=account)
    assert (len(pool.launched) - len(pool.probed), len(pool.probed)) == (corners, probes)
    assert len(beats) == corners + probes
    assert study.attrs[ELAPSED] >= 100.0
    # a verdict there is, on what there was
    kept = json.loads((place.folder / "isolate.json").read_text())
    assert len(kept["gap"]["missing_corners"]) == 6 - corners
    # a probe without the one it is held against is no result
    assert len(kept["probes"]) == (2 if probes == 2 else 0)
    spent = "wall_time_s" if budget.wall_time_s else "launches"
    said = ("said", f"budget.{spent} is spent: the verdict rests on what is measured")
    assert (said in events.seen) == (corners < 6)


@dataclass
class StoppedInTheFirstProbe(ProbingPool):
    """The groups of a whole sweep; Ctrl-C is pressed once its search is over."""

    device = "cpu"

    def try_start(self, job: TrialJob) -> bool:
        began = super().try_start(job)
        if began and job.probe_tokens is not None:
            signal.raise_signal(signal.SIGINT)
        return began

    def close(self, *, interrupt: bool) -> None:
        assert interrupt


def test_a_sweep_that_is_stopped_in_its_closing_isolation_was_interrupted(
    place: StudyPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ("search.sampler=random", "cluster.gpus=2")
    spec = parse_spec(place.spec_file, changes)
    pool = StoppedInTheFirstProbe()
    monkeypatch.setattr(compose, "check_environment", lambda _: None)
    monkeypatch.setattr(compose, "open_groups", lambda *_, **__: contextlib.nullcontext(pool))
    events = Events()
    result = compose.run_sweep(spec, place, events)
    assert (events.standings[-1].left, result.reason, result.interrupted) == (0, "interrupted", True)
    assert pool.launched[-1].probe_tokens is not None
    assert not (place.folder / "isolate.json").exists()


def test_probes_are_kept_when_what_follows_is_stopped(place: StudyPlace) -> None:
    measure(place, server(), "t0000")
    measure(place, SUSPECT, "t0001")
    stop = StopRequest()

    class StoppedInTheLastTrace(ProbingPool):
        def try_start(self, job: TrialJob) -> bool:
            if job.trace is not None and job.config.tp_size == 1:
                stop.by = "SIGINT"
            return super().try_start(job)

    assert run(isolation(place, trace=True), StoppedInTheLastTrace(), stop) is None
    again = isolation(place, trace=True).plan()
    assert again.probes == ()
    assert len(again.feeds) == 2
