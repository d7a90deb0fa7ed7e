"""What a model of round times knows before measuring, and that few measurements make it no surer than they can."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.step_design import Design
from results.step_misfit import scatter
from results.step_prior import SHARE_DEVIATION, prior, shares
from results.step_samples import StepSample
from results.step_terms import FORMS, RoundKind, term_matrix
from results.step_time import fit_step_time
from search_spaces.config import Triple

SMALL, LARGE = (
    RoundKind(batch=1.0, triple=Triple(num_steps=s, eagle_topk=k, num_draft_tokens=n), tp_size=1)
    for s, k, n in ((1, 1, 2), (8, 8, 64))
)


@pytest.mark.parametrize("form", FORMS)
@given(log_time=st.floats(-8, 2))
def test_a_priori_only_the_scale_is_unknown_and_shares_are_within_their_deviation(form: str, log_time: float) -> None:
    design = Design(FORMS[form], ((1, ""), (2, "")), [SMALL, LARGE])
    means, precision = prior(FORMS[form], design, np.array([log_time, log_time]))
    assert np.exp(means[1 : len(FORMS[form])] - means[0]) == pytest.approx(shares(FORMS[form])[1:])
    assert design.evaluate(means)[0].mean() == pytest.approx(log_time)
    covariance = np.linalg.inv(precision)
    share = covariance[1, 1] + covariance[0, 0] - 2 * covariance[0, 1]
    assert SHARE_DEVIATION < np.sqrt(share) < SHARE_DEVIATION * 1.05
    assert np.sqrt(covariance[0, 0]) > 2


@pytest.mark.parametrize("kind", [SMALL, LARGE])
def test_one_round_says_the_same_of_a_machine_whatever_was_measured(kind: RoundKind) -> None:
    """From one round of a small or a large tree the same machine follows: one of the most probable shares."""
    sizes = shares(FORMS["tree_sort"])
    step_s = float(0.01 * (term_matrix(FORMS["tree_sort"], [kind]) @ sizes)[0])
    sample = StepSample(batch=1.0, triple=kind.triple, tp_size=1, step_s=step_s)
    found = fit_step_time([sample], form="tree_sort").coefficients(1)
    assert list(found.values()) == pytest.approx(list(0.01 * sizes), rel=0.01)


def test_an_exact_fit_of_few_rounds_is_no_sign_of_an_exact_form() -> None:
    """Two surprises that unknown coefficients explain leave the scatter at what is usual; many small ones do not."""
    kinds = [
        RoundKind(batch=1.0, triple=Triple(num_steps=s, eagle_topk=1, num_draft_tokens=s + 1), tp_size=1)
        for s in range(1, 9)
    ]
    free = np.diag(np.full(2, 1.0))
    assert scatter(kinds[:2], np.array([0.0, 0.0]), free) == (0.02, 0.04)
    noise, misfit = scatter(kinds, np.zeros(8), np.zeros((8, 8)))
    assert noise <= 0.01
    assert misfit <= 0.02
