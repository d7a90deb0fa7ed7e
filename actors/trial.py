"""One trial on one engine: bring it up, warm it, measure every cell. Failure is part of the outcome, never raised."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from actors.engines.engine import Engine
from actors.job import TrialJob, TrialOutcome
from actors.load import measurement
from actors.load.workload import Workload
from actors.outcomes import end_job
from results.context_reserve import refused_for_room
from results.failures import Failure
from results.observations import CellObservation, LaunchObservation
from results.stopping import Rival
from results.switched_counters import with_switched_counters
from search_spaces.config import Triple


class Load(Protocol):
    """How an engine is loaded and measured."""

    def warm_up(self, engine: Engine, workload: Workload) -> Failure | None:
        """Send the warm-up prompts; None when the server answers."""
        ...

    def measure(self, engine: Engine, workload: Workload) -> tuple[tuple[CellObservation, ...], Failure | None]:
        """Every cell of the workload; with a Failure, the cells before it. A death of the server is named as such."""
        ...


@dataclass(frozen=True, kw_only=True)
class HttpLoad:
    """Load over HTTP, from this process, on the engine's own URL. `triple` and `rival` decide when a cell may stop."""

    triple: Triple | None = None
    rival: Rival | None = None

    def warm_up(self, engine: Engine, workload: Workload) -> Failure | None:
        return measurement.warm_up(engine.base_url, workload, failure_now=engine.failure_now)

    def measure(self, engine: Engine, workload: Workload) -> tuple[tuple[CellObservation, ...], Failure | None]:
        return measurement.measure_cells(
            engine.base_url, workload, failure_now=engine.failure_now, triple=self.triple, rival=self.rival
        )


def run_trial(engine: Engine, job: TrialJob, load: Load) -> TrialOutcome:
    """Run `job` and say what came of it; blocks for the whole trial.

    Cells measured before a failure are kept. After a success the server is left running, for a next trial with the same
    configuration; after a failure its health is unknown, so the engine is closed and must not be used again.
    """
    started_at_unix_s = time.time()
    launch: LaunchObservation | None = None
    cells: tuple[CellObservation, ...] = ()
    failure: Failure | None
    warm_up_s: float | None = None
    applied = engine.apply(job.config)
    if isinstance(applied, Failure):
        failure = applied
    else:
        launch = applied
        before_s = time.monotonic()
        failure = load.warm_up(engine, job.workload)
        warm_up_s = time.monotonic() - before_s
        if failure is None:
            cells, failure = load.measure(engine, job.workload)
            cells = tuple(with_switched_counters(cell, applied, job.config.triple) for cell in cells)
    ended = end_job(engine, job, started_at_unix_s, launch=launch, failure=failure, cells=cells, warm_up_s=warm_up_s)
    refused = None if launch is None else refused_for_room(cells, launch, job.config.triple, failure)
    return ended if refused is None else replace(ended, findings=(*ended.findings, refused))
