"""Quantiles of Student's t against the exact ones."""

from __future__ import annotations

import pytest
from scipy import stats as exact

from results.stats.student_t import student_t_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 500])
def test_t_quantiles_match_the_exact_ones(degrees: int) -> None:
    assert student_t_quantile(0.975, degrees) == pytest.approx(exact.t.ppf(0.975, degrees), rel=0.012)
