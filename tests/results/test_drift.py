"""Drift: a planted trend is found and corrected, noise is no trend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.drift import DriftPoint, find_drift

START = 1_800_000_000.0


def points(values: list[float], group: str = "tp1", hours: float = 2.0) -> list[DriftPoint]:
    times = np.linspace(START, START + hours * 3600, len(values))
    return [
        DriftPoint(group=group, at_unix_s=float(time), value=value) for time, value in zip(times, values, strict=True)
    ]


def test_a_planted_slowdown_is_found_with_its_size_and_corrected() -> None:
    slow = points([100.0, 95.0, 90.0]) + points([50.0, 47.5, 45.0], group="tp2")
    drift = find_drift(slow)
    assert drift is not None
    assert drift.significant
    assert drift.change.value == pytest.approx(-0.10, abs=0.005)
    assert drift.corrected(90.0, START + 7200) == pytest.approx(95.0, rel=0.01)
    assert drift.corrected(95.0, START + 3600) == pytest.approx(95.0)
    assert "corrected" in str(drift)


@given(days=st.floats(-30, 30), change=st.floats(-0.4, 0.4))
def test_the_trend_is_not_drawn_out_beyond_the_baselines(days: float, change: float) -> None:
    """A study that was resumed a day later: the correction stays within what the baselines showed."""
    drift = find_drift(points([100.0, 100.0 * (1 + change) ** 0.5, 100.0 * (1 + change)]))
    assert drift is not None
    at = START + days * 86400
    factor = drift.corrected(1.0, at)
    half = (1 + change) ** 0.5
    assert min(half, 1 / half) - 1e-9 <= factor <= max(half, 1 / half) + 1e-9
    if at < START:
        assert factor == drift.corrected(1.0, START)
    if at > START + 7200:
        assert factor == drift.corrected(1.0, START + 7200)
    assert drift.outside([at, START, START + 7200]) == (not START <= at <= START + 7200)


def test_a_steady_machine_has_no_drift_and_values_stay_as_they_are() -> None:
    drift = find_drift(points([100.0, 100.8, 99.6]))
    assert drift is not None
    assert not drift.significant
    assert drift.corrected(100.0, START) == 100.0
    assert "not significant" in str(drift)


def test_noise_is_called_drift_in_about_one_study_of_twenty() -> None:
    rng = np.random.default_rng(8)
    found = 0
    for _ in range(400):
        values = np.exp(rng.normal(0, 0.01, (2, 4))) * 100
        drift = find_drift([*points(values[0].tolist()), *points(values[1].tolist(), group="tp2")])
        assert drift is not None
        found += drift.significant
    assert found / 400 <= 0.08


def test_two_baselines_are_too_few() -> None:
    assert find_drift(points([100.0, 90.0])) is None
    assert find_drift([]) is None
