"""Switched servers against fresh ones: every setting that was measured both ways, compared. Pure.

Acceptance is compared prompt by prompt: at temperature 0 the verify steps should be equal to the unit, and where they
are not (ties, numerics of other batches) the difference must lie within its own noise. Throughput is compared in
`results.switch_speed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from results.cell_acceptance import acceptance_pairs
from results.loads import load_words
from results.measured_settings import MeasuredSetting, RowsOf, loads_of, measured_settings
from results.observations import LaunchObservation
from results.records import TrialRecord
from results.request_table import CellKey
from results.stats.ratios import Pair, overlapping_ratio
from results.switch_speed import Side, SwitchSpeeds
from results.switch_trust import BothWays, SwitchTrust

TOLERATED_LENGTH = 0.005
"""The relative difference in accept length that is left alone, whatever its interval."""


def judge_switching(records: Sequence[TrialRecord], rows_of: RowsOf) -> SwitchTrust:
    """Compare every setting that was measured both ways, at every load at which both have a cell that is ranked.

    Each workload by itself: a corner of an isolation may be sent other prompts, and is then no repeat of the search's
    trial. Records as they were measured: `of_one_workload` would take the corners away.
    """
    groups = [part for group in measured_settings(records) for part in _by_workload(group)]
    alike = [kind(group) for group in groups for kind in (_switched, _fresh)]
    checks: list[BothWays] = []
    speeds: SwitchSpeeds | None = None
    for group in groups:
        switched, fresh = _first_ranked(_switched(group)), _first_ranked(_fresh(group))
        for load, one in switched.items() if not group.effective.is_baseline else ():
            other = fresh.get(load)
            if other is not None:
                speeds = speeds or SwitchSpeeds(alike, loads_of(records), rows_of)
                checks.append(_compare(group, load, (one, other), rows_of, speeds))
    return SwitchTrust(checks=tuple(checks))


def _by_workload(group: MeasuredSetting) -> list[MeasuredSetting]:
    """The setting once for each workload that it was sent, with the cells of that alone."""
    ids = dict.fromkeys(cell.workload_id for record in group.measured for cell in record.cells)
    return [
        replace(
            group,
            records=tuple(
                replace(record, cells=tuple(cell for cell in record.cells if cell.workload_id == workload_id))
                for record in group.records
            ),
        )
        for workload_id in ids
    ]


def _switched(group: MeasuredSetting) -> MeasuredSetting:
    return _only(group, lambda launch: launch.switch_s is not None)


def _fresh(group: MeasuredSetting) -> MeasuredSetting:
    return _only(group, lambda launch: launch.switch_s is None and launch.weights_loaded)


def _only(group: MeasuredSetting, wanted: Callable[[LaunchObservation], bool]) -> MeasuredSetting:
    kept = tuple(record for record in group.records if record.launch is not None and wanted(record.launch))
    return replace(group, records=kept)


def _first_ranked(group: MeasuredSetting) -> dict[CellKey, Side]:
    """By load, the first cell that may be compared: failures or a warm cache make another throughput."""
    found: dict[CellKey, Side] = {}
    for record in group.measured:
        for cell in record.cells:
            if cell.ranked:
                found.setdefault(cell.load, (record, cell))
    return found


def _compare(
    group: MeasuredSetting, load: CellKey, sides: tuple[Side, Side], rows_of: RowsOf, speeds: SwitchSpeeds
) -> BothWays:
    triple, (switched, fresh) = group.effective.triple, sides
    ours = acceptance_pairs(rows_of(switched[0].trial_id).get(load, ()), triple)
    theirs = acceptance_pairs(rows_of(fresh[0].trial_id).get(load, ()), triple)
    shared = ours.keys() & theirs.keys()
    equal = sum(ours[key] == theirs[key] for key in shared)
    where = f"at {load_words(load)}"
    length, length_problem = _length(
        {key: ours[key] for key in shared}, {key: theirs[key] for key in shared}, equal=equal
    )
    speed, speed_problem = speeds.compare(load, switched, fresh)
    return BothWays(
        setting=group,
        load=load,
        switched_trial=switched[0].trial_id,
        fresh_trial=fresh[0].trial_id,
        prompts=len(shared),
        equal_prompts=equal,
        length_difference=length,
        throughput_difference=speed,
        length_problem=length_problem and f"{length_problem} {where}",
        speed_problem=speed_problem and f"{speed_problem} {where}",
        noise_measured=speeds.noise(load).repeats > 0,
    )


def _length(switched: dict[str, Pair], fresh: dict[str, Pair], *, equal: int) -> tuple[float | None, str | None]:
    if not switched:
        return None, None
    if equal == len(switched):
        return 0.0, None
    ratio = overlapping_ratio(switched, fresh)
    difference = ratio.value - 1
    beyond = ratio.count >= 2 and (ratio.low > 1 or ratio.high < 1) and abs(difference) > TOLERATED_LENGTH
    if not beyond:
        return difference, None
    return difference, (
        f"accept length differs by {difference:+.1%} on a fresh launch (interval {ratio.low - 1:+.1%} to "
        f"{ratio.high - 1:+.1%}; {len(switched) - equal} of {len(switched)} prompts took other verify steps)"
    )
