"""Predictions: the law of throughput, expected improvement, and when they are not trusted any more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.prediction import (
    AcceptLengths,
    Comparison,
    Forecast,
    Measured,
    PredictedSetting,
    ThroughputModel,
    expected_improvement,
    judge_predictions,
)
from search_spaces.config import Triple


def setting(steps: int, topk: int, tokens: int, tp_size: int = 1) -> PredictedSetting:
    triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    return PredictedSetting(layout="2,4,5", triple=triple, tp_size=tp_size)


SETTINGS = [setting(1, 1, 2), setting(3, 1, 4), setting(5, 4, 8), setting(5, 4, 32), setting(2, 4, 8)]
LENGTHS = AcceptLengths(
    values={(s.layout, s.triple): v for s, v in zip(SETTINGS, (1.7, 2.3, 2.9, 3.7, 2.4), strict=True)}
)


def test_throughput_is_accept_length_over_time() -> None:
    """Equal round times: then throughputs are about in the ratio of accept lengths, also where nothing was measured."""
    measured = [
        Measured(setting=s, throughput=4 * LENGTHS.values[s.layout, s.triple] / 0.02)
        for s in (*SETTINGS[:2], SETTINGS[3])
    ]
    model = ThroughputModel(LENGTHS, measured, batch=4)
    means, deviations = model.log_throughput([SETTINGS[4], setting(4, 1, 5)])
    assert math.exp(means[0]) == pytest.approx(4 * 2.4 / 0.02, rel=0.08)
    assert 0 < deviations[0] < 0.2
    assert math.isnan(means[1])
    assert model.forecast(setting(4, 1, 5)) is None
    forecast = model.forecast(SETTINGS[1])
    assert forecast is not None
    assert forecast.low < measured[1].throughput < forecast.high
    with pytest.raises(ValueError, match="no measured round"):
        ThroughputModel(LENGTHS, [Measured(setting=setting(4, 1, 5), throughput=1.0)], batch=4)


@given(st.floats(-2, 2), st.floats(0.01, 2), st.floats(-2, 2))
def test_expected_improvement_as_integrated(mean: float, deviation: float, best: float) -> None:
    grid = np.linspace(mean - 8 * deviation, mean + 8 * deviation, 4001)
    density = np.exp(-((grid - mean) ** 2) / (2 * deviation**2)) / (deviation * math.sqrt(2 * math.pi))
    integral = float((np.maximum(grid - best, 0) * density).sum() * (grid[1] - grid[0]))
    found = expected_improvement(np.array([mean]), np.array([deviation]), best)[0]
    assert found == pytest.approx(integral, abs=1e-4)


def compared(errors: list[float]) -> list[Comparison]:
    """Forecasts of 100 from 95 to 105."""
    forecast = Forecast(value=100.0, low=95.0, high=105.0)
    return [
        Comparison(number=number, setting=SETTINGS[2], forecast=forecast, measured=100 * (1 + error))
        for number, error in enumerate(errors)
    ]


@pytest.mark.parametrize(
    ("errors", "trusted"),
    [
        ([], True),
        ([0.01, -0.02, 0.2], True),
        ([0.2, -0.3, 0.01, 0.02], True),
        ([0.06, 0.07, -0.08, 0.09], True),  # outside the interval, but small
        ([0.2, 0.01, -0.3, 0.01, 0.15], False),
        ([0.2, 0.2, 0.2, 0.01, 0.01, 0.01, 0.01, 0.01], True),  # long ago
    ],
)
def test_trust(errors: list[float], trusted: bool) -> None:
    judged = judge_predictions(compared(errors))
    assert judged.trusted is trusted
    if not trusted:
        assert judged.reason == "3 of the last 5 predictions missed by more than 10%, 2,4,5 (5,4,8) tp 1 by -30%"
