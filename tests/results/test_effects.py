"""The three answers on an effect, and what would decide it."""

from __future__ import annotations

import numpy as np

from results.stats.effects import effect_verdict
from results.stats.ratios import paired_difference
from results.summary import Estimate


def estimate(value: float, half_width: float, count: int = 50) -> Estimate:
    return Estimate(value=value, low=value - half_width, high=value + half_width, count=count)


def test_three_answers() -> None:
    assert effect_verdict(estimate(0.01, 0.02), margin=0.05).answer == "no"
    assert effect_verdict(estimate(0.30, 0.10), margin=0.05).answer == "yes"
    undecided = effect_verdict(estimate(0.04, 0.05), margin=0.05)
    assert undecided.answer == "undecided"
    # Half-width 0.05 must shrink to 0.01: 25 times the 50 prompts, five per cent on top.
    assert undecided.more_prompts == 1313 - 50
    assert "1263 more prompts" in undecided.reason


def test_an_effect_below_the_margin_is_no_cause_even_when_it_is_certain() -> None:
    assert effect_verdict(estimate(0.03, 0.001), margin=0.05).answer == "no"


def test_an_effect_on_the_margin_cannot_be_decided_by_prompts() -> None:
    verdict = effect_verdict(estimate(0.05, 0.01), margin=0.05)
    assert (verdict.answer, verdict.more_prompts) == ("undecided", None)


def test_one_prompt_decides_nothing() -> None:
    single = Estimate(value=0.0, low=0.0, high=0.0, count=1)
    assert effect_verdict(single, margin=0.05).answer == "undecided"


def test_equivalence_across_tp_sizes_is_shown_by_the_interval() -> None:
    rng = np.random.default_rng(2)
    quality = rng.beta(6, 4, 80)
    sizes = []
    for _ in range(2):
        steps = rng.integers(80, 120, 80)
        tokens = steps + rng.binomial(steps * 3, quality)
        sizes.append({str(i): (float(tokens[i]), float(steps[i])) for i in range(80)})
    effect = paired_difference(*sizes)
    margin = 0.05 * sum(t for t, _ in sizes[0].values()) / sum(s for _, s in sizes[0].values())
    assert effect_verdict(effect, margin).answer == "no"
