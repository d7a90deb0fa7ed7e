"""Intervals of ratios of sums over prompts, and of two such ratios compared on the prompts that both have.

The prompt is the unit: requests of one prompt are summed first, so a repeated prompt counts once. Ratios have the
jackknife's intervals, which need no draws; differences the bootstrap's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from results.stats.bootstrap import Floats, bootstrap
from results.stats.student_t import student_t_quantile
from results.summary import Estimate

_LEAST_UNITS = 4


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
