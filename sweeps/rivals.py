"""The setting to beat: whoever is clearly slower may stop measuring. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from results.launch_noise import launch_noise
from results.measured_settings import launch_values, measured_settings, of_one_workload
from results.objective import Objective
from results.records import TrialRecord
from results.stopping import Rival


def best_so_far(records: Sequence[TrialRecord], objective: Objective) -> Rival | None:
    """The fastest speculative setting among the ranked ones; None without one, or when speed in a closed loop is not
    the objective: an open loop is never cut short.

    A setting that was launched several times is as fast as its slowest launch: the best of many noisy numbers is too
    good, and would dismiss its equals.
    """
    is_speed = objective.metric == "output_throughput" and objective.direction == "maximize"
    if not is_speed or objective.request_rate is not None:
        return None
    groups = measured_settings(of_one_workload(records, objective))
    values = {group.effective.identity: launch_values(group, objective) for group in groups}
    slowest = [
        min(values[group.effective.identity], key=lambda one: one.estimate.value)
        for group in groups
        if values[group.effective.identity] and not group.effective.is_baseline
    ]
    best = max(slowest, key=lambda one: one.estimate.value, default=None)
    if best is None:
        return None
    return Rival(
        concurrency=best.cell.concurrency, throughput=best.estimate, noise=launch_noise(groups, objective).relative
    )
