"""One trial on one engine: bring it up, warm it, measure every cell. Failure is part of the outcome, never raised."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from actors.engines.engine import Engine
from actors.job import TrialJob, TrialOutcome
from actors.load import measurement
from actors.load.workload import Workload
from results.failures import Failure
from results.observations import CellObservation, LaunchObservation


class Load(Protocol):
    """How an engine is loaded and measured."""

    def warm_up(self, engine: Engine, workload: Workload) -> Failure | None:
        """Send the warm-up prompts; None when all were answered."""
        ...

    def measure(self, engine: Engine, workload: Workload, concurrency: int) -> CellObservation | Failure:
        """One cell. A server that dies meanwhile is a Failure that names its death."""
        ...


class HttpLoad:
    """Load over HTTP, from this process, on the engine's own URL."""

    def warm_up(self, engine: Engine, workload: Workload) -> Failure | None:
        return measurement.warm_up(engine.base_url, workload)

    def measure(self, engine: Engine, workload: Workload, concurrency: int) -> CellObservation | Failure:
        return measurement.measure_cell(engine.base_url, workload, concurrency, failure_now=engine.failure_now)


def run_trial(engine: Engine, job: TrialJob, load: Load) -> TrialOutcome:
    """Run `job` and say what came of it; blocks for the whole trial.

    Cells measured before a failure are kept. After a failure the engine is closed, so that the next trial never meets a
    server of unknown health; after a success it is left running, for a next trial with the same configuration.
    """
    started_at_unix_s = time.time()
    applied = engine.apply(job.config)
    launch: LaunchObservation | None = None
    cells: list[CellObservation] = []
    failure: Failure | None
    if isinstance(applied, Failure):
        failure = applied
    else:
        launch = applied
        failure = _measure(engine, job.workload, load, cells)
    server_log = engine.log_tail()
    if failure is not None:
        failure = failure if failure.log_tail else replace(failure, log_tail=server_log[-_TAIL_CHARS:])
        engine.close()
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=started_at_unix_s,
        finished_at_unix_s=time.time(),
        launch=launch,
        cells=tuple(cells),
        failure=failure,
        server_log=server_log,
    )


_TAIL_CHARS = 4096
"""How much of the log a failure carries itself; the rest is beside it in the outcome."""


def _measure(engine: Engine, workload: Workload, load: Load, cells: list[CellObservation]) -> Failure | None:
    failure = load.warm_up(engine, workload)
    if failure is not None:
        return engine.failure_now() or failure
    for concurrency in workload.concurrency:
        cell = load.measure(engine, workload, concurrency)
        if isinstance(cell, Failure):
            return engine.failure_now() or cell
        cells.append(cell)
    return None
