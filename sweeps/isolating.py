"""Isolations as they are run: by a command, under the study's lock and with groups of its own, or as a sweep's end, in
the sweep's."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from results.isolation import Isolation
from search_spaces.config import EngineConfig
from search_spaces.errors import InputError
from sweeps.account import Account
from sweeps.groups import open_groups, stopping
from sweeps.home import StudyPlace
from sweeps.interrupts import StopRequest, stop_signals
from sweeps.lease import hold_folder
from sweeps.observers import Observer, Observers
from sweeps.seams import Pool
from sweeps.spec_schema import SweepSpec
from sweeps.study_isolation import IsolationRequest, StudyIsolation
from sweeps.tracking import tracking_observers

logger = logging.getLogger(__name__)


def isolate_study(isolation: StudyIsolation, observer: Observer) -> Isolation | None:
    """Run an isolation under the study's lock, with groups of its own where servers are needed.

    None when a signal said stop: what was measured is kept, and the next call goes on there. InputError and
    EnvironmentProblem as for a sweep.
    """
    with hold_folder(isolation.folder.lock_path):
        isolation.folder.open_for_write()
        plan = isolation.plan()
        if plan.not_traced:
            observer.said(f"nothing is traced: {plan.not_traced}")
        if plan.needs_servers and isolation.can_launch:
            with session(isolation, plan.servers) as (pool, stop):
                observers = [*tracking_observers(isolation.spec, isolation.place, isolation.folder), observer]
                done = isolation.run(plan, pool, Observers(observers), stop)
            if done is None:
                return None
            plan = done
        return isolation.conclude(plan)


@contextlib.contextmanager
def session(isolation: StudyIsolation, servers: Sequence[EngineConfig]) -> Iterator[tuple[Pool, StopRequest]]:
    """Groups for these servers and the request to stop; both end with the context."""
    spec = isolation.spec
    with (
        open_groups(spec, isolation.sweep.context, isolation.place, servers) as pool,
        stop_signals() as stop,
        stopping(pool, stop),
    ):
        yield pool, stop


def isolate_after_sweep(
    spec: SweepSpec,
    place: StudyPlace,
    pool: Pool,
    observer: Observer,
    stop: StopRequest,
    *,
    may_launch: bool,
    account: Account,
) -> bool:
    """The isolation with which a sweep ends: most corners are measured by then. In the sweep's own groups and lock, and
    on its account.

    When the budget forbids launches the verdicts rest on what is there. A study without two ends to compare has none.
    False when told to stop before the verdicts.
    """
    try:
        isolation = StudyIsolation(spec, place, IsolationRequest())
        plan = isolation.plan(probe=may_launch)
    except InputError as problem:
        logger.info("no verdicts: %s", problem)
        return True
    done = isolation.run(plan, pool, observer, stop, account) if may_launch and plan.needs_servers else plan
    if done is None:
        return False
    isolation.conclude(done)
    return True
