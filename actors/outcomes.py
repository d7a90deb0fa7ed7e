"""How a job on an engine ends, whatever it was: a trial, a probe or a trace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from actors.engines.engine import Engine
from actors.job import TrialJob, TrialOutcome
from results.failures import Failure
from results.feed import FeedCapture
from results.observations import CellObservation, LaunchObservation
from results.trace_segments import TracedFiles

LOG_CHARS = 4096
"""How much of the log a failure carries itself; the rest is beside it in the outcome."""


def end_job(
    engine: Engine,
    job: TrialJob,
    started_at_unix_s: float,
    *,
    launch: LaunchObservation | None,
    failure: Failure | None,
    cells: Sequence[CellObservation] = (),
    feeds: Sequence[FeedCapture] = (),
    traced: TracedFiles | None = None,
    warm_up_s: float | None = None,
) -> TrialOutcome:
    """The outcome of `job`, ended now. A failure without a log gets the end of the engine's.

    After a failure the health of the server is unknown, so the engine is closed and must not be used again.
    """
    server_log = engine.log_tail()
    if failure is not None:
        failure = failure if failure.log_tail else replace(failure, log_tail=server_log[-LOG_CHARS:])
        engine.close()
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=started_at_unix_s,
        finished_at_unix_s=time.time(),
        launch=launch,
        cells=tuple(cells),
        failure=failure,
        server_log=server_log,
        feeds=tuple(feeds),
        traced=traced,
        warm_up_s=warm_up_s,
    )


def failed_outcome(job: TrialJob, failure: Failure, started_at_unix_s: float | None = None) -> TrialOutcome:
    """The outcome of a trial that never reached a server, or whose server and all it saw were lost."""
    now = time.time()
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=now if started_at_unix_s is None else started_at_unix_s,
        finished_at_unix_s=now,
        launch=None,
        cells=(),
        failure=failure,
        server_log=failure.log_tail,
    )
