"""Intervals of ratios: coverage on data with a known truth, pairing, and where they fall back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as exact

from results.stats.ratios import overlapping_ratio, paired_difference, ratio_of_sums
from results.summary import Estimate


def synthetic_prompts(rng: np.random.Generator, prompts: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and verify steps of prompts that differ in length and in how well they are predicted."""
    steps = rng.integers(20, 120, prompts)
    rate = rng.beta(6, 4, prompts)
    return steps + rng.binomial(steps * 3, rate), steps


@pytest.mark.parametrize("prompts", [12, 60])
def test_intervals_cover_the_truth_and_are_no_wider_than_needed(prompts: int) -> None:
    truth = 1 + 3 * 0.6
    rng = np.random.default_rng(11)
    estimates = [ratio_of_sums(*synthetic_prompts(rng, prompts)) for _ in range(300)]
    covered = np.mean([estimate.low <= truth <= estimate.high for estimate in estimates])
    # 300 runs: a true coverage of 95 % lies between 92 % and 98 % nearly always.
    assert 0.92 <= covered <= 0.985
    exact_half_width = 1.96 * np.std([estimate.value for estimate in estimates])
    half_widths = [(estimate.high - estimate.low) / 2 for estimate in estimates]
    assert 0.85 < np.median(half_widths) / exact_half_width < 1.35


def test_pairing_removes_what_prompts_have_in_common() -> None:
    rng = np.random.default_rng(3)
    tokens, steps = synthetic_prompts(rng, 80)
    first = {f"p{i}": (float(tokens[i]), float(steps[i])) for i in range(80)}
    second = {key: (1.05 * t, s) for key, (t, s) in first.items()}
    ratio = overlapping_ratio(first, second)
    assert ratio.value == pytest.approx(1.05)
    assert ratio.high - ratio.low < 1e-9
    difference = paired_difference(first, second)
    alone = ratio_of_sums(tokens, steps)
    assert difference.high - difference.low < (alone.high - alone.low) / 5
    assert difference.value == pytest.approx(0.05 * alone.value)


def test_pairs_are_the_shared_prompts_only() -> None:
    first = {"a": (2.0, 1.0), "b": (4.0, 1.0)}
    second = {"b": (6.0, 1.0), "c": (100.0, 1.0)}
    assert paired_difference(first, second).value == pytest.approx(2.0)
    with pytest.raises(ValueError, match="share no prompt"):
        paired_difference({"a": (1.0, 1.0)}, {"b": (1.0, 1.0)})


def test_paired_difference_covers_no_effect() -> None:
    rng = np.random.default_rng(17)
    covered = 0
    for run in range(150):
        quality = rng.beta(6, 4, 40)
        pairs = []
        for _ in range(2):
            steps = rng.integers(40, 80, 40)
            tokens = steps + rng.binomial(steps * 3, quality)
            pairs.append({str(i): (float(tokens[i]), float(steps[i])) for i in range(40)})
        estimate = paired_difference(*pairs, seed=run)
        covered += estimate.low <= 0 <= estimate.high
    assert covered >= 0.91 * 150


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=1, max_size=30))
def test_estimates_are_reproducible_ordered_and_scale(pairs: list[tuple[float, float]]) -> None:
    tops, bottoms = [a for a, _ in pairs], [b for _, b in pairs]
    estimate = ratio_of_sums(tops, bottoms)
    assert estimate == ratio_of_sums(tops, bottoms)
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.value == pytest.approx(sum(tops) / sum(bottoms))
    assert ratio_of_sums([3 * a for a in tops], bottoms).low == pytest.approx(3 * estimate.low)


def test_no_units_is_refused_and_one_unit_has_no_spread() -> None:
    with pytest.raises(ValueError, match="at least one unit"):
        ratio_of_sums([], [])
    assert ratio_of_sums([5], [2]) == Estimate(value=2.5, low=2.5, high=2.5, count=1)


def test_a_ratios_interval_is_students_t_of_the_logarithms_with_each_prompt_left_out() -> None:
    tops, bottoms = [4.0, 6.0, 5.0, 9.0, 8.0], [2.0, 2.0, 3.0, 3.0, 4.0]
    logs = np.log([(32 - top) / (14 - bottom) for top, bottom in zip(tops, bottoms, strict=True)])
    squares = (logs - logs.mean()) ** 2
    degrees = min(4, 2 * 5 / (5 * (squares**2).sum() / squares.sum() ** 2 - 1))
    half_width = exact.t.ppf(0.975, degrees) * np.sqrt(4 / 5 * squares.sum())
    ratio = ratio_of_sums(tops, bottoms)
    assert (ratio.low, ratio.high) == pytest.approx(tuple(32 / 14 * np.exp([-half_width, half_width])), rel=0.01)


def test_what_hangs_on_one_prompt_is_less_sure() -> None:
    even, uneven = ([50.0 + i % 2 for i in range(40)], [50.0] * 39 + [57.0])
    squares = [sum((one - np.mean(values)) ** 2 for one in values) for values in (even, uneven)]
    half_widths = [np.log(ratio_of_sums(values, [1.0] * 40).high / np.mean(values)) for values in (even, uneven)]
    # about one degree of freedom for each prompt that counts: t is 2.02 for all forty, above 4 for a single one
    per_error = half_widths / np.sqrt(squares)
    assert 1.9 < per_error[1] / per_error[0] < 2.3


def test_without_a_logarithm_the_bootstrap_answers() -> None:
    ratio = ratio_of_sums([3.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    assert ratio.low == 0
    assert ratio.value == pytest.approx(0.6)
    assert ratio.high > 0.6


def test_where_one_saw_fewer_prompts_the_interval_is_between_paired_and_independent() -> None:
    rng = np.random.default_rng(3)
    difficulty = rng.gamma(20, 1 / 20, 200)
    slow = {f"p{i}": (100.0, 2 * time) for i, time in enumerate(difficulty)}
    fast = {f"p{i}": (100.0, time) for i, time in enumerate(difficulty)}
    few = {key: fast[key] for key in list(fast)[:50]}

    def width(estimate: Estimate) -> float:
        return float(np.log(estimate.high / estimate.low))

    assert width(overlapping_ratio(slow, fast)) < 1e-9
    alone = [ratio_of_sums(*zip(*pairs.values(), strict=True)) for pairs in (slow, few)]
    nested = overlapping_ratio(slow, few)
    whole = sum(tokens for tokens, _ in slow.values()) / sum(time for _, time in slow.values())
    part = sum(tokens for tokens, _ in few.values()) / sum(time for _, time in few.values())
    assert nested.value == pytest.approx(part / whole)
    assert 0 < width(nested) < np.hypot(width(alone[0]), width(alone[1]))
    # Var(log) of a mean over n of N shared units: sigma^2 (1/n - 1/N).
    assert width(nested) == pytest.approx(2 * 1.96 * np.sqrt(1 / 20 * (1 / 50 - 1 / 200)), rel=0.25)
    with pytest.raises(ValueError, match="share no prompt"):
        overlapping_ratio({"a": (1.0, 1.0)}, {"b": (1.0, 1.0)})


def test_a_ratio_is_as_sure_as_the_cell_with_fewer_prompts() -> None:
    many = {f"p{i}": (10.0, 1.0) for i in range(400)}
    values = (5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 8.0, 12.0)
    few = {f"p{i}": (value, 1.0) for i, value in enumerate(values)}
    ratio, alone = overlapping_ratio(many, few), ratio_of_sums(values, [1.0] * len(values))
    assert ratio.value == pytest.approx(alone.value / 10)
    # the draws of all 400 prompts hold few or many of the eight by chance, which stands for the small number
    assert ratio.high - ratio.low == pytest.approx((alone.high - alone.low) / 10, rel=0.15)
