"""Two accept lengths that should be equal, or should not: how far apart, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from results.attribution import DEFAULT_MARGIN
from results.explain.reading import Reading
from results.stats.effects import Answer

EQUAL = 0.05
"""Reported accept lengths of one configuration agree within this (vLLM PR #32030 tests TP 1, 2 and 4 with it)."""
DIFFERENT = 0.10
"""Beyond this they differ, even when nobody says how many prompts stand behind them (80 prompts: about 6 errors)."""
DESIGN_EFFECT = 2.5
"""Verify steps of one prompt resemble each other: the variance of their mean is this many times that of free ones."""
PROMPT_SPREAD = 0.15
"""Relative standard deviation of the accept length between prompts of one set (as assumed for `DIFFERENT`)."""
UNSURE = 0.10
"""Half-width of an interval above which a small difference says nothing."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`relative` is (second - first) / larger; `error` its standard error, None when no counts are given.

    `different` is three-valued: yes, no, undecided.
    """

    relative: float
    error: float | None
    different: Answer

    def __str__(self) -> str:
        spread = "" if self.error is None else f" +- {1.96 * self.error:.1%}"
        return f"{self.relative:+.1%}{spread}"


def compare(first: Reading, second: Reading) -> Comparison | None:
    """Compare the accept lengths of two readings; None when one has none."""
    if not first.accept_length or not second.accept_length:
        return None
    larger = max(first.accept_length, second.accept_length)
    relative = (second.accept_length - first.accept_length) / larger
    errors = [standard_error(first), standard_error(second)]
    known = [value for value in errors if value is not None]
    error = sqrt(sum(value**2 for value in known)) / larger if len(known) == 2 else None
    different = _answer(abs(relative), error)
    if error is None and different == "yes" and abs(relative) <= prompt_noise(first, second):
        different = "undecided"
    return Comparison(relative=relative, error=error, different=different)


def prompt_noise(first: Reading, second: Reading) -> float:
    """Relative difference that other prompts alone may make, 0 when a row does not say how many it measured."""
    counts = (first.row.num_prompts, second.row.num_prompts)
    if not counts[0] or not counts[1]:
        return 0.0
    return 1.96 * PROMPT_SPREAD * sqrt(1 / counts[0] + 1 / counts[1])


def _answer(size: float, error: float | None) -> Answer:
    if error is None:
        return "no" if size <= EQUAL else "yes" if size > DIFFERENT else "undecided"
    excludes_zero = size > 1.96 * error
    if size > EQUAL:
        return "yes" if excludes_zero else "undecided"
    if 1.96 * error > UNSURE or (excludes_zero and size > DEFAULT_MARGIN):
        return "undecided"
    return "no"


def standard_error(reading: Reading) -> float | None:
    """Standard error of an accept length from its counts; None without counts of verify steps."""
    histogram = reading.row.histogram
    steps = reading.row.verify_steps or (sum(histogram) if histogram else 0)
    if not steps:
        return None
    if histogram and sum(histogram):
        mean = sum(i * count for i, count in enumerate(histogram)) / sum(histogram)
        variance = sum(count * (i - mean) ** 2 for i, count in enumerate(histogram)) / sum(histogram)
    else:
        # No histogram: the spread of a number between 1 and the ceiling, about a third of that range.
        variance = ((reading.triple.num_steps if reading.triple else 4) / 3) ** 2
    return sqrt(DESIGN_EFFECT * variance / steps)


def largest_spread(series: Sequence[Reading]) -> Comparison | None:
    """The comparison of the best reading of a series against its worst one."""
    measured = [reading for reading in series if reading.accept_length]
    if len(measured) < 2:
        return None
    best = max(measured, key=lambda reading: reading.accept_length or 0.0)
    worst = min(measured, key=lambda reading: reading.accept_length or 0.0)
    return compare(best, worst)
