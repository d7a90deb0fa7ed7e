"""Intervals of a population's quantiles from order statistics, which assume no distribution and need no draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def quantile_interval(values: Sequence[float], probability: float, level: float = 0.95) -> tuple[float, float] | None:
    """The interval between two order statistics that holds a population's quantile, whatever its distribution.

    X(l) <= quantile <= X(u) with the probability that l <= B < u for B of Binomial(n, probability) (W. J. Conover,
    "Practical Nonparametric Statistics", 3.2). None when there are too few values for an end: a 99th percentile takes
    some 370.
    """
    ordered, count = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    if count < 2 or not 0 < probability < 1:
        return None
    below = _binomial_cdf(count, probability)
    tail = (1 - level) / 2
    low = int(np.searchsorted(below, tail, side="right"))  # the largest l with P(B < l) <= tail
    high = int(np.searchsorted(below, 1 - tail)) + 1  # the smallest u with P(B < u) >= 1 - tail
    if low < 1 or high > count:
        return None
    return float(ordered[low - 1]), float(ordered[high - 1])


@lru_cache(maxsize=64)
def _binomial_cdf(count: int, probability: float) -> NDArray[np.float64]:
    """P(B <= k) for k = 0 to `count`."""
    ways = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    hits = np.arange(count + 1)
    logs = np.asarray(ways) + hits * math.log(probability) + (count - hits) * math.log1p(-probability)
    cdf: NDArray[np.float64] = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    return cdf
