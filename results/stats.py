"""Intervals by resampling prompts, and the three answers: yes, no, cannot tell.

The prompt is the unit of resampling: requests of one prompt are summed first, so a repeated prompt counts once. Ratios
of sums have the jackknife's intervals, which need no draws; differences the bootstrap's, deterministic for a seed and
vectorised over resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from results.summary import Estimate

Floats = NDArray[np.float64]
Answer = Literal["yes", "no", "undecided"]

RESAMPLES = 4000
_LEAST_UNITS = 4
_CHUNK_CELLS = 4_000_000
"""Upper bound of (resamples x prompts) held at once: 32 MB of counts."""


def student_t_quantile(probability: float, degrees: float) -> float:
    """The quantile of Student's t by the expansion of Abramowitz and Stegun 26.7.5: within 1 % from 3 degrees on.

    One and two degrees use their closed forms.
    """
    if degrees <= 0:
        raise ValueError(f"degrees of freedom must be positive, not {degrees}")
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees ** (order + 1) for order, term in enumerate(terms))


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


def jackknife(statistic: Callable[[Floats], Floats], columns: Floats, *, level: float = 0.95) -> Estimate:
    """An estimate of a positive `statistic` over units, both as in `bootstrap`, from leaving out one unit at a time.

    The interval is symmetric for the logarithm, which suits ratios: see `_log_half_widths`. It is the bootstrap's for
    fewer than four units, whose spread Student's t would stretch beyond any use, and where leaving out a unit makes the
    statistic zero or undefined, which has no logarithm. ValueError as for `bootstrap`.
    """
    if len(columns) < _LEAST_UNITS:
        return bootstrap(statistic, columns, level=level)
    total = columns.sum(axis=0, keepdims=True)
    value, without = float(statistic(total)[0]), statistic(total - columns)
    if not (np.isfinite(without) & (without > 0)).all():
        return bootstrap(statistic, columns, level=level)
    return _log_symmetric(value, float(_log_half_widths(np.log(without)[:, None], level)[0]), len(columns))


def _log_symmetric(value: float, half_width: float, count: int) -> Estimate:
    grown = float(np.exp(half_width))
    return Estimate(value=value, low=value / grown, high=value * grown, count=count)


def _log_half_widths(logs: Floats, level: float) -> Floats:
    """Half-widths of the jackknife's intervals; `logs` is the logarithm without each unit, shape [units, statistics].

    Student's t times the jackknife's standard error of the logarithm (R. G. Miller, "The jackknife: a review",
    Biometrika 61, 1974, also for taking logarithms). That error is a sum of squares that few units may dominate, when
    they are unlike the others or all that one of two measurements has: it then has fewer degrees of freedom than n - 1,
    namely 2n / (kurtosis - 1), those of a chi-squared with its variance (F. E. Satterthwaite, "An approximate
    distribution of estimates of variance components", Biometrics Bulletin 2, 1946).
    """
    units = len(logs)
    squares = (logs - logs.mean(axis=0)) ** 2
    total = squares.sum(axis=0)
    spread = units * (squares**2).sum(axis=0) - total**2
    degrees = np.full(len(total), units - 1.0)
    np.divide(2 * units * total**2, spread, out=degrees, where=spread > 0)
    quantiles = [student_t_quantile(0.5 + level / 2, min(units - 1.0, one)) for one in degrees.tolist()]
    half_widths: Floats = np.asarray(quantiles) * np.sqrt((units - 1) / units * total)
    return half_widths


def _ratio(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums[:, 0] / sums[:, 1]


def ratio_of_sums(numerators: Sequence[float], denominators: Sequence[float], *, level: float = 0.95) -> Estimate:
    """sum(numerators) / sum(denominators) with its interval; entry i of both belongs to prompt i."""
    return jackknife(_ratio, np.column_stack([numerators, denominators]).astype(np.float64), level=level)


def ratios_of_sums(
    numerators: Sequence[float] | Floats | NDArray[np.int64], denominators: NDArray[np.generic]
) -> tuple[Estimate, ...]:
    """`ratio_of_sums` for many columns of denominators, shape [prompts, columns]. All numbers must be positive."""
    columns = np.column_stack([numerators, denominators]).astype(np.float64)
    if len(columns) < _LEAST_UNITS:
        return tuple(jackknife(_ratio, columns[:, [0, i]]) for i in range(1, columns.shape[1]))
    total = columns.sum(axis=0)
    logs = np.log(total - columns)
    half_widths = _log_half_widths(logs[:, :1] - logs[:, 1:], 0.95)
    pairs = zip((total[0] / total[1:]).tolist(), half_widths.tolist(), strict=True)
    return tuple(_log_symmetric(value, half_width, len(columns)) for value, half_width in pairs)


Pair = tuple[float, float]
"""(numerator, denominator) of one prompt, such as tokens and verify steps."""


def _paired_columns(first: Mapping[str, Pair], second: Mapping[str, Pair]) -> Floats:
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise ValueError("the two measurements share no prompt")
    return np.asarray([[*first[key], *second[key]] for key in shared], dtype=np.float64)


def paired_difference(first: Mapping[str, Pair], second: Mapping[str, Pair], *, seed: int = 0) -> Estimate:
    """ratio(second) - ratio(first) over the prompts that both measured, the same prompts drawn for both."""
    return bootstrap(lambda s: _ratio(s[:, 2:]) - _ratio(s[:, :2]), _paired_columns(first, second), seed=seed)


def overlapping_ratio(first: Mapping[str, Pair], second: Mapping[str, Pair]) -> Estimate:
    """ratio(second) / ratio(first), each over its own prompts; a prompt that both measured is left out of both.

    Paired when both saw the same prompts. Where one cell stopped earlier, prompts that only the other measured count
    for that one alone, so the interval is right for the two values as they stand. ValueError when they share none.
    """
    if not first.keys() & second.keys():
        raise ValueError("the two measurements share no prompt")
    nothing = (0.0, 0.0)
    union = sorted(first.keys() | second.keys())
    columns = np.asarray([[*first.get(key, nothing), *second.get(key, nothing)] for key in union], dtype=np.float64)

    def ratio(sums: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient: Floats = _ratio(sums[:, 2:]) / _ratio(sums[:, :2])
        return quotient

    return jackknife(ratio, columns)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether an effect is there. `more_prompts` is how many further prompts would decide an undecided one.

    It is None when the answer is decided, and also when no number of prompts can decide (the effect sits on the
    margin); `reason` says which in words.
    """

    answer: Answer
    more_prompts: int | None
    reason: str


def effect_verdict(effect: Estimate, margin: float) -> Verdict:
    """Yes: the interval excludes 0 and the size exceeds the margin. No: the interval lies within the margin.

    Undecided otherwise. The number of prompts assumes a half-width that shrinks with the square root of their number.
    """
    if margin <= 0:
        raise ValueError(f"the margin must be positive, not {margin}")
    span = f"{effect.value:+.3g} [{effect.low:+.3g}, {effect.high:+.3g}]"
    if effect.count >= 2 and -margin <= effect.low and effect.high <= margin:
        return Verdict(answer="no", more_prompts=None, reason=f"{span} lies within the margin of {margin:.3g}")
    if effect.count >= 2 and (effect.low > 0 or effect.high < 0) and abs(effect.value) > margin:
        return Verdict(
            answer="yes", more_prompts=None, reason=f"{span} excludes 0 and exceeds the margin of {margin:.3g}"
        )
    more = _more_prompts(effect, margin)
    advice = f"about {more} more prompts would decide" if more is not None else "the effect sits on the margin"
    return Verdict(answer="undecided", more_prompts=more, reason=f"{span} against the margin of {margin:.3g}: {advice}")


def _more_prompts(effect: Estimate, margin: float, at_most: int = 1_000_000) -> int | None:
    half_width = (effect.high - effect.low) / 2
    if effect.count < 2:
        return 20
    size = abs(effect.value)
    # Above the margin it takes an interval that excludes 0; below, one that stays inside the margin.
    target = size if size > margin else margin - size
    if target <= 0:
        return None
    needed = math.ceil(effect.count * (half_width / target) ** 2 * 1.05)
    return max(1, needed - effect.count) if needed - effect.count <= at_most else None


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
def _binomial_cdf(count: int, probability: float) -> Floats:
    """P(B <= k) for k = 0 to `count`."""
    ways = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    hits = np.arange(count + 1)
    logs = np.asarray(ways) + hits * math.log(probability) + (count - hits) * math.log1p(-probability)
    cdf: Floats = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    return cdf


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
