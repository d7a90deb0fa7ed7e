"""Spreads of what should be equal: published values, and repeats beside the prior."""

from __future__ import annotations

import pytest
from scipy import stats as exact

from results.stats.spreads import moderated_spread, relative_spread


def test_published_tp_sizes_agree_within_five_percent() -> None:
    assert relative_spread([2.60, 2.58, 2.63]) == pytest.approx(0.0192, abs=1e-4)
    assert relative_spread([2.60, 2.58, 2.63]) < 0.05


def test_spread_without_repeats_is_the_prior_and_repeats_move_it() -> None:
    assert moderated_spread([[100.0], []]).deviation == pytest.approx(0.01)
    quiet = moderated_spread([[100.0, 100.1, 99.9]] * 10)
    noisy = moderated_spread([[100.0, 110.0, 92.0]] * 10)
    assert quiet.deviation < 0.005
    assert noisy.deviation > 0.07
    assert noisy.repeats == 20
    assert noisy.t975 == pytest.approx(exact.t.ppf(0.975, 23), rel=0.01)
