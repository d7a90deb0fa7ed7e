from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.attributed import explanation_of
from results.attribution import GROUPS, Corner, Group, attribute, corners, shapley_values
from results.stats.ratios import Pair


def additive(effects: Mapping[Group, float], prompts: int, noise: float, seed: int) -> dict[Corner, dict[str, Pair]]:
    """Per-prompt counts whose accept length is 2 plus the effects of the groups taken from the reference."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(0.0, 0.2, prompts)
    measured: dict[Corner, dict[str, Pair]] = {}
    for corner in corners():
        mean = 2.0 + sum(effects.get(group, 0.0) for group in corner)
        values = mean + levels + rng.normal(0.0, noise, prompts)
        measured[corner] = {f"p{i}": (100.0 * value, 100.0) for i, value in enumerate(values)}
    return measured


def test_shares_of_a_worked_game() -> None:
    values: dict[Corner, float] = dict.fromkeys(corners(), 1.0)
    values[frozenset({"config", "layout"})] = 2.0
    values[frozenset(GROUPS)] = 2.0
    shares = shapley_values(values)
    assert shares == {"config": pytest.approx(0.5), "layout": pytest.approx(0.5), "parallelism": pytest.approx(0.0)}


@given(st.lists(st.floats(1.0, 8.0), min_size=8, max_size=8))
def test_shares_sum_to_the_gap(numbers: list[float]) -> None:
    values = dict(zip(corners(), numbers, strict=True))
    gap = values[frozenset(GROUPS)] - values[frozenset()]
    assert sum(shapley_values(values).values()) == pytest.approx(gap, abs=1e-9)


@given(st.permutations([0.0, 0.4, 0.9]), st.integers(0, 1000))
@settings(max_examples=6, deadline=None)
def test_planted_effects_are_found(sizes: list[float], seed: int) -> None:
    effects = dict(zip(GROUPS, sizes, strict=True))
    result = attribute(additive(effects, prompts=60, noise=0.02, seed=seed))
    for group, size in effects.items():
        share = result.shares[group]
        assert share.value == pytest.approx(size, abs=0.02)
        assert result.verdicts[group].answer == ("yes" if size else "no")
    assert sum(share.value for share in result.shares.values()) == pytest.approx(result.gap.value)
    assert all(abs(dividend.value) < 0.05 for dividend in result.interactions.values())


def test_interactions_are_shown() -> None:
    measured = additive({"config": 0.0}, prompts=40, noise=0.0, seed=1)
    both = frozenset[Group]({"config", "layout"})
    for corner in measured:
        if both <= corner:
            measured[corner] = {name: (tokens + 80.0, steps) for name, (tokens, steps) in measured[corner].items()}
    result = attribute(measured)
    assert result.interactions[both].value == pytest.approx(0.8)
    assert result.shares["config"].value == pytest.approx(0.4)
    assert result.shares["parallelism"].value == pytest.approx(0.0)


def test_noise_leaves_a_verdict_open_and_says_how_many_prompts_decide() -> None:
    result = attribute(additive({"layout": 0.08}, prompts=12, noise=0.2, seed=3))
    verdict = result.verdicts["layout"]
    assert verdict.answer == "undecided"
    assert verdict.more_prompts is None or verdict.more_prompts > 0
    assert "margin" in verdict.reason


def test_measured_repeat_noise_widens_the_margin() -> None:
    measured = additive({"layout": 0.1}, prompts=60, noise=0.01, seed=5)
    assert attribute(measured).verdicts["layout"].answer == "yes"
    wide = attribute(measured, repeat_noise=0.1)
    assert wide.margin == pytest.approx(0.1 * wide.reference_value)
    assert wide.verdicts["layout"].answer == "no"


def test_groups_that_do_not_differ_need_no_corner() -> None:
    measured = additive({"config": 0.5}, prompts=30, noise=0.01, seed=2)
    ends = {corner: measured[corner] for corner in (frozenset[Group](), frozenset[Group]({"config"}))}
    result = attribute(ends, differing=["config"])
    assert result.shares["config"].value == pytest.approx(0.5, abs=0.02)
    assert result.verdicts["layout"].answer == "no"
    assert result.shares["layout"].value == 0.0


def test_missing_corners_and_prompts_are_refused() -> None:
    measured = additive({}, prompts=3, noise=0.0, seed=0)
    short = {corner: rows for corner, rows in measured.items() if len(corner) != 2}
    with pytest.raises(ValueError, match=r"corner \{config, layout\} is not measured"):
        attribute(short)
    with pytest.raises(ValueError, match="share no prompt"):
        attribute({corner: {f"{i}": (2.0, 1.0)} for i, corner in enumerate(corners())})


def test_an_attribution_as_verdicts() -> None:
    result = attribute(additive({"config": 0.5}, prompts=40, noise=0.01, seed=4))
    explanation = explanation_of(result, evidence={"config": "ceiling 2"})
    assert [verdict.verdict for verdict in explanation.verdicts] == ["yes", "no", "no"]
    assert "ceiling 2" in explanation.cause("config").evidence
    content = explanation.to_json()
    assert content["gap"]["value"] == pytest.approx(sum(row["share"] for row in content["verdicts"]), abs=1e-4)
    assert len(content["gap"]["interactions"]) == 4
    low, high = content["verdicts"][0]["interval"]
    assert low <= 0.5 <= high
