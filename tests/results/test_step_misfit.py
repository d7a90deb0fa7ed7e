"""The scatter of round times: as likely as a plain calculation says."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from results.step_misfit import MISFIT_LEVELS, NOISE_LEVELS, likeness, scatter, scattered
from results.step_terms import RoundKind
from search_spaces.config import Triple

KINDS = [
    RoundKind(
        batch=float(batch),
        triple=Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=8),
        tp_size=tp_size,
    )
    for batch, steps, topk, tp_size in itertools.product((1, 4), (3, 5), (2, 4), (1, 2))
]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 20), unknown=st.integers(1, 4))
def test_the_likeliest_level_of_the_grid(seed: int, count: int, unknown: int) -> None:
    """Kinds may repeat, which makes their likeness singular."""
    draw = np.random.default_rng(seed)
    kinds = [KINDS[i] for i in draw.integers(len(KINDS), size=count)]
    spread = draw.normal(size=(count, unknown)) * 0.3
    surprises = spread @ draw.normal(size=unknown) + draw.normal(size=count) * 0.03

    def likelihood(noise: float, misfit: float) -> float:
        covariance = scattered(kinds, noise, misfit) + spread @ spread.T
        broad = math.log(noise / 0.02) ** 2 / 2 + math.log(misfit / 0.04) ** 2 / 2
        return float(multivariate_normal(cov=covariance).logpdf(surprises)) - broad

    levels = list(itertools.product(NOISE_LEVELS, MISFIT_LEVELS))
    found = scatter(kinds, surprises, spread)
    assert found in levels
    assert likelihood(*found) >= max(likelihood(*level) for level in levels) - 1e-6


def test_a_kind_is_wholly_like_itself() -> None:
    assert np.allclose(np.diag(likeness(KINDS, KINDS)), 1.0)
