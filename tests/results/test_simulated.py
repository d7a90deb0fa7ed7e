"""Simulated acceptance: told by the launch, or seen in counters that no draft could have earned."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import cell, spec_row

from results.cells import summarise_cell, summarised
from results.simulated import MIN_STEPS, looks_simulated
from search_spaces.config import Triple

TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)


def drawn(length: float, steps: int, seed: int = 0) -> list[int]:
    """A histogram as the method `match-expected` draws it: the length rounded down or up, minus the bonus token."""
    draws, lower = random.Random(seed), int(length)
    counts = [0] * (lower + 1)
    for _ in range(steps):
        counts[lower if draws.random() < length - lower else lower - 1] += 1
    return counts


@pytest.mark.parametrize("length", [2.1, 2.5, 3.0, 3.24, 4.9, 5.5])
def test_one_length_rounded_down_or_up_is_no_drafts_work(length: float) -> None:
    assert looks_simulated(drawn(length, 400), 5)
    assert not looks_simulated(drawn(length, MIN_STEPS - 1), 5)


@pytest.mark.parametrize(
    "histogram",
    [
        [400],  # a draft that is never right
        [0, 0, 0, 0, 0, 400],  # a loop: always right
        [390, 10],  # hardly ever right
        [0, 0, 0, 0, 2, 500],  # nearly always
        [1, 150, 250],
        [0, 100, 200, 1],
        [0, 100, 0, 200],
        [],
    ],
)
def test_what_real_drafts_do_is_not_called_simulated(histogram: list[int]) -> None:
    assert not looks_simulated(histogram, 5)


@given(
    chances=st.lists(st.floats(0.0, 0.97), min_size=2, max_size=7), steps=st.integers(200, 2000), seed=st.integers(0)
)
def test_independent_positions_are_not_called_simulated(chances: list[float], steps: int, seed: int) -> None:
    draws = random.Random(seed)
    counts = [0] * (len(chances) + 1)
    for _ in range(steps):
        accepted = next((i for i, chance in enumerate(chances) if draws.random() >= chance), len(chances))
        counts[accepted] += 1
    assert not looks_simulated(counts, len(chances))


def test_a_cell_that_looks_simulated_is_not_ranked_and_says_what_to_do() -> None:
    rows = [spec_row(f"p{i}", drawn(3.24, 40, seed=i), 6) for i in range(10)]
    found = summarise_cell(cell(rows), TRIPLE)
    assert not found.ranked
    assert found.not_ranked[0].startswith("simulated acceptance: each of 400 verify steps accepted 2 or 3 drafts")
    assert "unset SGLANG_SIMULATE_ACC_LEN" in found.not_ranked[0]


def test_a_simulation_that_was_allowed_is_said_on_every_cell() -> None:
    from result_builders import launch

    rows = [spec_row(f"p{i}", drawn(3.24, 40, seed=i), 6) for i in range(10)]
    observed = launch(simulated="SGLANG_SIMULATE_ACC_LEN=3.24")
    found = summarised(cell(rows), observed, TRIPLE)
    assert found.ranked
    assert any("simulated acceptance (SGLANG_SIMULATE_ACC_LEN=3.24)" in warning for warning in found.warnings)
    # a baseline has no acceptance to simulate
    assert summarised(cell(rows), observed, None).warnings == ()
