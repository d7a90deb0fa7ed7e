"""Intervals of quantiles: coverage on data with a known truth, and the textbook's ranks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as exact

from results.stats.quantiles import quantile_interval


@pytest.mark.parametrize(("probability", "count"), [(0.5, 12), (0.5, 64), (0.9, 200)])
def test_a_quantiles_interval_holds_it_whatever_the_distribution(probability: float, count: int) -> None:
    rng = np.random.default_rng(count)
    truth = float(np.exp(exact.norm.ppf(probability)))
    found = [quantile_interval(np.exp(rng.normal(size=count)).tolist(), probability) for _ in range(1000)]
    covered = sum(low <= truth <= high for low, high in found) / 1000  # type: ignore[misc]
    # of the whole ranks the next wider pair is taken: never too narrow, at 12 values rather too wide
    assert 0.94 <= covered <= 0.985


def test_a_quantiles_interval_are_the_textbooks_order_statistics() -> None:
    # the median of 20 values: the 6th and the 15th, with 0.9586
    assert quantile_interval([float(i) for i in range(1, 21)], 0.5) == (6.0, 15.0)
    # a 99th percentile needs 0.99^n below 0.025
    assert quantile_interval(list(range(367)), 0.99) is None
    assert quantile_interval(list(range(368)), 0.99) is not None
    assert quantile_interval([1.0], 0.5) is None
