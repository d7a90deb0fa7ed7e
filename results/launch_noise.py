"""By how much launches of one configuration differ, from every configuration that was launched more than once.

It does not matter why it was launched again: repeats of the search, baselines, controls of an isolation and the
winner's confirmation are all fresh servers. Three things have to be right.

- A launch is a server process. A running server that was switched back to a configuration measures the same process
  again, and tells nothing about the next one: it is left out.
- Cells that stopped early saw fewer prompts. Launches are then compared over the prompts that all of them measured.
- The launch that a winner won by is biased upwards: of m equal settings it has the largest of m noises. The deviation
  that follows from its distance to a fresh launch of the same configuration is right on average when the winner is
  clear, 1.4 times too large among 10 equal settings and 1.7 times among 40, and never too small
  (`tests/results/test_launch_noise.py`). So it is left out where its configuration has two other launches, and used
  where it has one: a floor that is rather too wide says "tie" or "cannot tell" once too often, but not "worse" without
  reason. `NoiseFloor.selected` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from results.measured_settings import LaunchValue, MeasuredSetting, all_launch_values
from results.noise import NoiseFloor, noise_floor
from results.objective import Objective
from results.paired_intervals import PairedIntervals


def launch_noise(
    settings: Sequence[MeasuredSetting],
    objective: Objective,
    corrected: Callable[[float, float], float] = lambda value, _: value,
    intervals: PairedIntervals | None = None,
) -> NoiseFloor:
    """The noise floor of the objective. Without `intervals` cells are compared by their values as they stand."""
    groups, selected = [], False
    for setting in settings:
        launches = _one_a_process(all_launch_values(setting, objective, corrected))
        winning = _winning(launches, objective)
        if winning is not None and len(launches) > 2:
            launches, winning = [one for one in launches if one is not winning], None
        if len(launches) > 1:
            groups.append(_comparable(launches, objective, intervals))
            selected |= winning is not None
    return noise_floor(groups, selected=selected)


def repeated_launches(settings: Sequence[MeasuredSetting], objective: Objective) -> list[list[str]]:
    """The trials that measured the objective on a process of their own, of every configuration that has two or more."""
    groups = [_one_a_process(all_launch_values(setting, objective)) for setting in settings]
    return [[one.record.trial_id for one in launches] for launches in groups if len(launches) > 1]


def _one_a_process(values: Sequence[LaunchValue]) -> list[LaunchValue]:
    seen: set[tuple[int, int]] = set()
    kept = []
    for value in values:
        launch = value.record.launch
        process = None if launch is None else (launch.pid, launch.port)
        if launch is None or process is None or launch.weights_loaded or process not in seen:
            kept.append(value)
        if process is not None:
            seen.add(process)
    return kept


def _winning(launches: Sequence[LaunchValue], objective: Objective) -> LaunchValue | None:
    """The launch by which a setting won, that is the best of those before its confirmation; None if it did not win."""
    before = [one for one in launches if one.record.role != "confirm"]
    if len(before) == len(launches):
        return None
    pick = max if objective.direction == "maximize" else min
    return pick(before, key=lambda one: one.estimate.value, default=None)


def _comparable(
    launches: Sequence[LaunchValue], objective: Objective, intervals: PairedIntervals | None
) -> tuple[float, ...]:
    """Their values; over shared prompts if they did not all measure as many."""
    if intervals is not None and len({one.cell.requests for one in launches}) > 1:
        cell = launches[0].cell
        load = cell.load
        shared = intervals.shared_values(objective.metric, load, [one.record.trial_id for one in launches])
        if shared is not None:
            return tuple(value * one.factor for value, one in zip(shared, launches, strict=True))
    return tuple(one.estimate.value for one in launches)
