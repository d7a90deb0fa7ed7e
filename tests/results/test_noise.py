"""Noise between launches and three-valued comparisons."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.noise import compare, log_half_width, noise_floor
from results.summary import Estimate


def test_the_floor_covers_what_two_launches_differ_by() -> None:
    rng = np.random.default_rng(4)
    deviation, inside, floors = 0.03, 0, []
    for _ in range(400):
        groups = np.exp(rng.normal(0, deviation, (4, 3)))
        floor = noise_floor(groups.tolist())
        first, second = np.exp(rng.normal(0, deviation, 2))
        inside += abs(math.log(first / second)) <= floor.relative
        floors.append(floor.relative)
    assert 0.91 <= inside / 400 <= 0.99
    assert np.median(floors) == pytest.approx(1.96 * math.sqrt(2) * deviation, rel=0.2)


def test_without_repeats_the_floor_says_that_it_is_assumed() -> None:
    floor = noise_floor([[100.0], [200.0]])
    assert floor.repeats == 0
    assert "assumed" in str(floor)
    assert "measured on 2 repeated launches" in str(noise_floor([[100.0, 101.0, 102.0]]))


def test_two_quiet_launches_of_one_setting_are_a_tie_and_three_floors_below_is_worse() -> None:
    floor = noise_floor([[100.0, 102.0]])
    assert compare(102, 100, prompt_half_width=0.0, launch_half_width=floor.relative).standing == "tie"
    worse = 100 * math.exp(-3 * floor.relative)
    result = compare(100, worse, prompt_half_width=floor.relative, launch_half_width=floor.relative)
    assert result.standing == "worse"
    assert result.behind == pytest.approx(1 - math.exp(-3 * floor.relative))


def test_a_tie_needs_the_prompts_and_the_distance_within_the_floor_together() -> None:
    assert compare(100, 98, prompt_half_width=0.02, launch_half_width=0.03).standing == "tie"
    assert compare(100, 97.5, prompt_half_width=0.02, launch_half_width=0.03).standing == "cannot tell"
    assert compare(100, 99.9, prompt_half_width=0.04, launch_half_width=0.03).standing == "cannot tell"


def test_launches_of_one_setting_tie_nineteen_times_in_twenty() -> None:
    rng, tied = np.random.default_rng(0), 0
    for _ in range(400):
        groups = np.exp(rng.normal(0, 0.02, (5, 2)))
        first, second = groups[0].mean(), np.exp(rng.normal(0, 0.02, 2)).mean()
        floor = noise_floor(groups.tolist())
        best, other = max(first, second), min(first, second)
        tied += compare(best, other, prompt_half_width=0.0, launch_half_width=floor.half_width(2, 2)).standing == "tie"
    assert 0.91 <= tied / 400 <= 0.99


def test_wide_intervals_over_prompts_cannot_tell() -> None:
    assert compare(100, 95, prompt_half_width=0.10, launch_half_width=0.03).standing == "cannot tell"
    assert compare(100, 80, prompt_half_width=0.10, launch_half_width=0.03).standing == "worse"


@given(st.floats(1, 1e4), st.floats(1, 1e4), st.floats(0, 0.2), st.floats(0.001, 0.2))
def test_minimising_is_maximising_upside_down(first: float, second: float, prompts: float, launches: float) -> None:
    up = compare(first, second, prompt_half_width=prompts, launch_half_width=launches)
    down = compare(1 / first, 1 / second, prompt_half_width=prompts, launch_half_width=launches, maximize=False)
    assert up.standing == down.standing
    assert up.behind == pytest.approx(down.behind)


def test_half_width_on_the_scale_of_logarithms() -> None:
    assert log_half_width(Estimate(value=1.0, low=0.9, high=1.1, count=5)) == pytest.approx(0.1003, abs=1e-4)
    assert log_half_width(Estimate(value=1.0, low=0.0, high=1.1, count=5)) == math.inf
