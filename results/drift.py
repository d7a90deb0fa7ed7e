"""Whether the machine itself became faster or slower during a study, told from repeated baselines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from results.measured_settings import MeasuredSetting, launch_values
from results.objective import Objective
from results.stats.student_t import student_t_quantile
from results.summary import Estimate

MIN_POINTS = 3
"""How often a baseline is measured at least for drift to be tested: at the start, in the middle and at the end."""


@dataclass(frozen=True, kw_only=True)
class DriftPoint:
    """One repeated measurement: which configuration, when, and its positive value."""

    group: str
    at_unix_s: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The relative change from the first to the last of the baselines (`change`, with its 95 % interval) and the line
    behind it. Nothing is known of the time before and after them: a study may go on the next day."""

    change: Estimate
    slope_per_s: float
    first_unix_s: float
    last_unix_s: float

    @property
    def significant(self) -> bool:
        return self.change.low > 0 or self.change.high < 0

    def corrected(self, value: float, at_unix_s: float) -> float:
        """The value as it would have been in the middle between the first and the last baseline; unchanged when the
        trend is not significant. The line is not drawn out: a value from before or after them is taken as at the nearer
        one."""
        if not self.significant:
            return value
        within = min(max(at_unix_s, self.first_unix_s), self.last_unix_s)
        return value * math.exp(-self.slope_per_s * (within - (self.first_unix_s + self.last_unix_s) / 2))

    def outside(self, times_unix_s: Iterable[float]) -> int:
        """How many of these lie before the first or after the last baseline."""
        return sum(not self.first_unix_s <= at <= self.last_unix_s for at in times_unix_s)

    def __str__(self) -> str:
        span = f"{self.change.value:+.1%} [{self.change.low:+.1%}, {self.change.high:+.1%}] from first to last"
        verdict = "significant, values are corrected for it" if self.significant else "not significant"
        return f"baselines changed by {span}: {verdict}"


def find_drift(points: Sequence[DriftPoint]) -> Drift | None:
    """The common trend of repeated measurements; None when no configuration was measured three times.

    One slope of the logarithm over time for all groups, each with its own level (least squares). The residual variance
    is steadied by the prior of `moderated_spread`, so that three points on a line by chance are no trend.
    """
    # needs numpy, which a plan should not wait for
    from results.stats.spreads import PRIOR_DEGREES, PRIOR_DEVIATION

    groups: dict[str, list[DriftPoint]] = defaultdict(list)
    for point in points:
        groups[point.group].append(point)
    repeated = [group for group in groups.values() if len(group) >= MIN_POINTS]
    times, logs = [], []
    for group in repeated:
        mean_time = sum(point.at_unix_s for point in group) / len(group)
        mean_log = sum(math.log(point.value) for point in group) / len(group)
        times += [point.at_unix_s - mean_time for point in group]
        logs += [math.log(point.value) - mean_log for point in group]
    spread = sum(time * time for time in times)
    if not repeated or spread <= 0:
        return None
    slope = sum(time * log for time, log in zip(times, logs, strict=True)) / spread
    residuals = sum((log - slope * time) ** 2 for time, log in zip(times, logs, strict=True))
    degrees = PRIOR_DEGREES + len(times) - len(repeated) - 1
    deviation = math.sqrt((PRIOR_DEGREES * PRIOR_DEVIATION**2 + residuals) / degrees)
    half_width = student_t_quantile(0.975, degrees) * deviation / math.sqrt(spread)
    every_time = [point.at_unix_s for group in repeated for point in group]
    first, last = min(every_time), max(every_time)
    change, low, high = (math.expm1(rate * (last - first)) for rate in (slope, slope - half_width, slope + half_width))
    return Drift(
        change=Estimate(value=change, low=low, high=high, count=len(times)),
        slope_per_s=slope,
        first_unix_s=first,
        last_unix_s=last,
    )


def baseline_drift(baselines: Sequence[MeasuredSetting], objective: Objective) -> Drift | None:
    """The trend of the objective over the launches of the baselines; None when none was launched three times."""
    return find_drift(
        [
            DriftPoint(
                group=group.effective.identity,
                at_unix_s=one.at_unix_s,
                value=one.estimate.value,
            )
            for group in baselines
            for one in launch_values(group, objective)
        ]
    )


def correction(drift: Drift | None) -> Callable[[float, float], float]:
    """`Drift.corrected`; without a drift, values as they are."""
    return drift.corrected if drift is not None else lambda value, _: value
