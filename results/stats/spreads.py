"""How far values that should be equal lie apart, and the deviation between repeats, steadied by a prior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from results.stats.student_t import student_t_quantile


def relative_spread(values: Sequence[float]) -> float:
    """(largest - smallest) / mean of values that should be equal, such as accept lengths at several TP sizes."""
    if not values or sum(values) <= 0:
        raise ValueError(f"needs positive values, not {list(values)}")
    return (max(values) - min(values)) / (sum(values) / len(values))


@lru_cache(maxsize=64)
def _quantile_975(degrees: float) -> float:
    return student_t_quantile(0.975, degrees)


@dataclass(frozen=True, kw_only=True)
class ModeratedSpread:
    """A relative standard deviation between launches, steadied by a prior so that two repeats do not decide alone."""

    deviation: float
    degrees: float
    repeats: int

    @property
    def t975(self) -> float:
        return _quantile_975(self.degrees)


PRIOR_DEVIATION = 0.01
PRIOR_DEGREES = 3.0


def moderated_spread(groups: Sequence[Sequence[float]]) -> ModeratedSpread:
    """The pooled relative deviation within groups of repeats, moderated by a prior of 1 % worth 3 repeats.

    s^2 = (d0 s0^2 + sum of squares) / (d0 + d), of the logarithms, as in G. K. Smyth, "Linear models and empirical
    Bayes methods", SAGMB 3(1), 2004. Without repeats it is the prior. Values must be positive.
    """
    squares, degrees = 0.0, 0
    for group in groups:
        logs = np.log(np.asarray(group, dtype=np.float64))
        if len(logs) > 1:
            squares += float(((logs - logs.mean()) ** 2).sum())
            degrees += len(logs) - 1
    total = PRIOR_DEGREES + degrees
    return ModeratedSpread(
        deviation=math.sqrt((PRIOR_DEGREES * PRIOR_DEVIATION**2 + squares) / total), degrees=total, repeats=degrees
    )
