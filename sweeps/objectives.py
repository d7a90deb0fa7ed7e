"""The objective that a spec asks for."""

from __future__ import annotations

from results.objective import Objective
from sweeps.spec_schema import SweepSpec


def objective_of(spec: SweepSpec) -> Objective:
    """The spec's objective with its defaults filled in."""
    rate = spec.objective.request_rate
    return Objective(
        metric=spec.objective.metric,
        concurrency=spec.objective_concurrency if rate is None else None,
        request_rate=rate,
        goal=spec.objective.goal,
    )
