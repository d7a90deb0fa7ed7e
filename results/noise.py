"""Launch-to-launch noise, and whether one setting is worse than another, tied with it, or neither can be told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from results.stats.spreads import ModeratedSpread, moderated_spread
from results.summary import Estimate

Standing = Literal["best", "tie", "worse", "cannot tell"]


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """By how much, relatively, two launches of one configuration differ 95 times in 100.

    `repeats` counts the launches beyond the first of every configuration it was measured on; with 0 the floor is
    assumed (a prior of 1 % deviation), not measured. `selected` is True when one of the launches is the one that a
    winner won by (`results/launch_noise.py`): such a floor is rather too wide.
    """

    spread: ModeratedSpread
    selected: bool = False

    @property
    def relative(self) -> float:
        return self.half_width(1, 1)

    @property
    def repeats(self) -> int:
        return self.spread.repeats

    def half_width(self, launches: int, other_launches: int) -> float:
        """The same for the means of several launches each."""
        return self.spread.t975 * self.spread.deviation * math.sqrt(1 / launches + 1 / other_launches)

    def __str__(self) -> str:
        if not self.repeats:
            return f"{self.relative:.1%} (assumed: no configuration was launched twice)"
        launches = "1 repeated launch" if self.repeats == 1 else f"{self.repeats} repeated launches"
        selected = ", the winner's among them, which makes it rather too wide" if self.selected else ""
        return f"{self.relative:.1%} (measured on {launches}{selected})"


def noise_floor(groups: Sequence[Sequence[float]], *, selected: bool = False) -> NoiseFloor:
    """From the values of configurations, one entry a launch. Values must be positive."""
    return NoiseFloor(spread=moderated_spread(groups), selected=selected)


def log_half_width(estimate: Estimate) -> float:
    """Half of an interval's width on the scale of logarithms; 0 for a degenerate one, infinite when it reaches 0."""
    if estimate.low <= 0:
        return 0.0 if estimate.low == estimate.high else math.inf
    return (math.log(estimate.high) - math.log(estimate.low)) / 2


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far a value lies behind another one, relatively, and what may be said about it.

    `behind` is positive when it is worse. `half_width` is that of its 95 % interval, from prompts and launches.
    """

    standing: Standing
    behind: float
    half_width: float


def compare(
    best: float, other: float, *, prompt_half_width: float, launch_half_width: float, maximize: bool = True
) -> Comparison:
    """`other` against `best`, two positive values with half-widths on the scale of logarithms.

    A tie when the distance and what other prompts could change about it lie, together, within what two launches differ
    by; worse when the interval over prompts and launches excludes equality; else it cannot be told.
    """
    distance = math.log(best / other) if maximize else math.log(other / best)
    half_width = math.hypot(prompt_half_width, launch_half_width)
    if math.hypot(distance, prompt_half_width) <= launch_half_width:
        standing: Standing = "tie"
    else:
        standing = "worse" if distance > half_width else "cannot tell"
    return Comparison(standing=standing, behind=1 - math.exp(-distance), half_width=half_width)
