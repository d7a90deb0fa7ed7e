"""The throughput of a switched server beside that of a fresh one, on the prompts that both were sent. Pure.

Both get the same prompts, so which these are is no reason to differ: what is left alone is what two launches differ by,
and what differs from prompt to prompt beyond the chance in the time of one request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from results.launch_noise import launch_noise, repeated_launches
from results.measured_settings import MeasuredSetting, RowsOf
from results.noise import NoiseFloor, log_half_width
from results.objective import Metric
from results.paired_intervals import PairedIntervals
from results.records import TrialRecord
from results.request_table import CellKey
from results.speedups import throughput_at
from results.summary import CellSummary

METRIC: Metric = "output_throughput"

TOLERATED_SPEED = 0.2
"""The relative difference in throughput that is left alone as long as no repeat has measured the noise between launches
on this machine."""

Side = tuple[TrialRecord, CellSummary]


class SwitchSpeeds:
    """`alike` are settings with launches of one kind each: switched and fresh ones are no repeats of each other.

    Each load has its own noise floor: a launch that was measured at several loads is one repeat at each, not several.
    """

    def __init__(self, alike: Sequence[MeasuredSetting], loads: Sequence[CellKey], rows_of: RowsOf) -> None:
        repeats = dict.fromkeys(tuple(ids) for load in loads for ids in repeated_launches(alike, throughput_at(load)))
        self._intervals = PairedIntervals(rows_of, list(repeats))
        self._noises = {load: launch_noise(alike, throughput_at(load), intervals=self._intervals) for load in loads}

    def noise(self, load: CellKey) -> NoiseFloor:
        """By how much launches differ at one of the loads."""
        return self._noises[load]

    def compare(self, load: CellKey, switched: Side, fresh: Side) -> tuple[float | None, str | None]:
        """The relative difference (fresh / switched - 1) and, if it is beyond noise, a sentence on it.

        Over the prompts that both measured where one cell stopped earlier. With too few shared prompts the two values
        are compared as they stand, each with its own interval.
        """
        one, other = switched[1].output_throughput, fresh[1].output_throughput
        if one is None or other is None or min(one.value, other.value) <= 0:
            return None, None
        ids = switched[0].trial_id, fresh[0].trial_id
        before, after = one.value, other.value
        scatter = self._intervals.shared_half_width(METRIC, load, *ids)
        if scatter is None:
            scatter = math.hypot(log_half_width(one), log_half_width(other))
        elif switched[1].requests != fresh[1].requests:
            before, after = self._intervals.shared_values(METRIC, load, ids) or (before, after)
        distance = math.log(after / before)
        noise = self.noise(load)
        bound = math.hypot(noise.relative, scatter)
        if not noise.repeats:
            bound = max(bound, TOLERATED_SPEED)
        if abs(distance) <= bound:
            return math.expm1(distance), None
        floor = "measured" if noise.repeats else "assumed"
        limit = math.expm1(math.copysign(bound, distance))
        return math.expm1(distance), (
            f"throughput differs by {math.expm1(distance):+.1%} on a fresh launch, beyond the {limit:+.1%} of {floor} "
            "noise"
        )
