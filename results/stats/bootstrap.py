"""Intervals by drawing units with replacement: the bootstrap, deterministic for a seed and vectorised over resamples.

The caller sums what belongs to one unit first: a prompt that was sent twice is one unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from results.stats.student_t import student_t_quantile
from results.summary import Estimate

Floats = NDArray[np.float64]

RESAMPLES = 4000
_CHUNK_CELLS = 4_000_000
"""Upper bound of (resamples x prompts) held at once: 32 MB of counts."""


def tail_probability(count: int, level: float) -> float:
    """The tail to cut at each end of a bootstrap over `count` units: Hesterberg's expanded percentile interval.

    A plain percentile interval is too narrow by sqrt((n-1)/n) and by the difference of the t and normal quantiles
    (T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69(4), 2015). The
    expanded tail is Phi(-sqrt(n/(n-1)) t), and tends to (1 - level)/2.
    """
    if count < 2:
        return 0.0
    t = student_t_quantile(0.5 + level / 2, count - 1)
    return NormalDist().cdf(-math.sqrt(count / (count - 1)) * t)


def bootstrap(
    statistic: Callable[[Floats], Floats],
    columns: Floats,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Estimate:
    """An estimate of `statistic` over units (rows of `columns`, shape [units, columns]).

    `statistic` maps sums of columns, shape [resamples, columns], to values, shape [resamples]. A single unit has no
    spread to resample: its interval is degenerate (low = high = value) with count 1. ValueError without units or when
    the statistic of the whole sample is not finite.
    """
    if columns.ndim != 2 or len(columns) == 0:
        raise ValueError(f"needs at least one unit, not an array of shape {columns.shape}")
    value = float(statistic(columns.sum(axis=0, keepdims=True))[0])
    if len(columns) == 1:
        return Estimate(value=value, low=value, high=value, count=1)
    replicates = statistic(_resampled_sums(columns, seed, resamples))
    replicates = replicates[np.isfinite(replicates)]
    tail = tail_probability(len(columns), level)
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value), count=len(columns))


def _resampled_sums(columns: Floats, seed: int, resamples: int) -> Floats:
    """Sums of the columns under `resamples` draws with replacement, shape [resamples, columns]."""
    units = len(columns)
    rng = np.random.default_rng(seed)
    per_chunk = max(1, _CHUNK_CELLS // units)
    parts: list[Floats] = []
    for start in range(0, resamples, per_chunk):
        draws = min(per_chunk, resamples - start)
        picks = rng.integers(0, units, size=(draws, units))
        offsets = np.arange(draws)[:, None] * units
        counts = np.bincount((picks + offsets).ravel(), minlength=draws * units).reshape(draws, units)
        parts.append(counts.astype(np.float64) @ columns)
    return np.concatenate(parts)
