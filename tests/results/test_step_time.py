"""Step-time models on times whose law is known: recovery, choice of form, honest uncertainty, other TP sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import summary

from results.step_samples import StepSample, step_sample
from results.step_terms import DEFAULT_FORM, FORMS, RoundKind, term_matrix
from results.step_time import cross_validated_error, fit_step_time
from search_spaces.config import Triple

TRIPLES = [
    Triple(num_steps=s, eagle_topk=k, num_draft_tokens=n)
    for s, k, n in [
        (1, 1, 2),
        (3, 1, 4),
        (5, 1, 6),
        (2, 4, 8),
        (3, 4, 16),
        (5, 4, 8),
        (5, 4, 32),
        (8, 8, 64),
        (3, 8, 48),
    ]
]
MORE = [Triple(num_steps=s, eagle_topk=k, num_draft_tokens=n) for s, k, n in [(4, 2, 8), (6, 2, 16), (7, 8, 24)]]
TRUTH = {"round": 8e-3, "draft_steps": 1.2e-3, "requests": 2e-4, "verify_tokens": 5e-5, "draft_tokens": 2e-5}


def times(
    form: str,
    coefficients: list[float],
    *,
    noise: float,
    tp_size: int = 1,
    scale: float = 1.0,
    seed: int = 0,
    triples: Sequence[Triple] = TRIPLES,
) -> list[StepSample]:
    rng = np.random.default_rng(seed)
    kinds = [RoundKind(batch=b, triple=t, tp_size=tp_size) for t, b in itertools.product(triples, (1.0, 4.0, 8.0))]
    clean = scale * term_matrix(FORMS[form], kinds) @ np.array(coefficients)
    noisy = clean * np.exp(noise * rng.standard_normal(len(kinds)))
    return [
        StepSample(batch=kind.batch, triple=kind.triple, tp_size=tp_size, step_s=float(step))
        for kind, step in zip(kinds, noisy, strict=True)
    ]


def test_a_known_law_is_found_again() -> None:
    model = fit_step_time(times("tree_batch", list(TRUTH.values()), noise=0.002), form="tree_batch")
    found = model.coefficients(1)
    for name, value in TRUTH.items():
        assert found[name] == pytest.approx(value, rel=0.15), name
    unseen = RoundKind(batch=6.0, triple=Triple(num_steps=6, eagle_topk=4, num_draft_tokens=24), tp_size=1)
    expected = float((term_matrix(FORMS["tree_batch"], [unseen]) @ np.array(list(TRUTH.values())))[0])
    assert model.predict([unseen]).median_s[0] == pytest.approx(expected, rel=0.01)
    assert model.noise <= 0.01


def test_the_form_is_chosen_by_error_on_left_out_settings() -> None:
    flat = times("roofline_64", [8e-3, 1.2e-3, 2e-4, 3e-4, 1e-6], noise=0.003, triples=[*TRIPLES, *MORE])
    errors = {name: cross_validated_error(flat, name) for name in FORMS}
    assert fit_step_time(flat).form == min(errors, key=lambda name: errors[name])
    assert errors["roofline_64"] < errors["steps"] / 4
    assert fit_step_time(flat).cross_validated == min(errors.values())
    few = [sample for sample in flat if sample.triple in TRIPLES[:4]]
    assert fit_step_time(few).form == DEFAULT_FORM


def test_intervals_hold_what_they_promise() -> None:
    """Over 40 noisy data sets, unseen settings fall within two standard deviations about as often as they should."""
    inside = []
    unseen = [
        RoundKind(batch=b, triple=Triple(num_steps=s, eagle_topk=k, num_draft_tokens=n), tp_size=1)
        for b, (s, k, n) in itertools.product((2.0, 8.0), [(4, 4, 12), (6, 2, 16), (7, 8, 32), (2, 1, 3)])
    ]
    truth = np.log(term_matrix(FORMS["tree_batch"], unseen) @ np.array(list(TRUTH.values())))
    for seed in range(40):
        model = fit_step_time(times("tree_batch", list(TRUTH.values()), noise=0.02, seed=seed)[::2], form="tree_batch")
        predicted = model.predict(unseen)
        inside.append(np.abs(predicted.log_mean - truth) < 2 * predicted.log_deviation)
    assert np.mean(inside) > 0.9


def test_one_sample_at_another_tp_size_moves_all_of_it() -> None:
    samples = times("tree_batch", list(TRUTH.values()), noise=0.003)
    kind = RoundKind(batch=4.0, triple=TRIPLES[3], tp_size=2)
    other = RoundKind(batch=4.0, triple=TRIPLES[6], tp_size=2)
    before = fit_step_time(samples).predict([kind, other])
    assert (before.log_deviation > 0.4).all()
    half = [s for s in times("tree_batch", list(TRUTH.values()), noise=0.003, tp_size=2, scale=0.5) if s.batch == 4.0]
    after = fit_step_time([*samples, half[5]]).predict([other])
    assert after.log_mean[0] == pytest.approx(before.log_mean[1] + np.log(0.5), abs=0.15)
    assert after.log_deviation[0] < before.log_deviation[1] / 2


def test_near_a_measurement_the_model_follows_it() -> None:
    """One setting takes half as long again as its form says: the prediction there is the measurement's."""
    samples = times("tree_batch", list(TRUTH.values()), noise=0.002)
    odd = [
        StepSample(batch=s.batch, triple=s.triple, tp_size=1, step_s=1.5 * s.step_s) if s.triple == TRIPLES[5] else s
        for s in samples
    ]
    model = fit_step_time(odd, form="tree_batch")
    at = next(s for s in odd if s.triple == TRIPLES[5] and s.batch == 4.0)
    assert model.predict([at.kind]).median_s[0] == pytest.approx(at.step_s, rel=0.05)


def test_draws_scatter_as_the_coefficients_do() -> None:
    model = fit_step_time(times("tree_batch", list(TRUTH.values()), noise=0.02)[:6])
    kinds = [RoundKind(batch=4.0, triple=t, tp_size=1) for t in TRIPLES]
    draws = np.log(model.draw(kinds, 4000, np.random.default_rng(0)))
    predicted = model.predict(kinds)
    assert np.allclose(draws.mean(axis=0), predicted.log_mean, atol=0.05)
    assert (draws.std(axis=0) <= predicted.log_deviation * 1.05).all()


def test_samples_from_cells() -> None:
    """Two in flight for 10 s and 400 verify steps: 200 rounds of 50 ms."""
    cell = summary(duration_s=10.0, verify_steps=400, mean_in_flight=2.0)
    sample = step_sample(cell, TRIPLES[0], 2)
    assert sample is not None
    assert (sample.step_s, sample.batch, sample.kind.group) == (pytest.approx(0.05), 2.0, (2, ""))
    assert step_sample(summary(verify_steps=None), TRIPLES[0], 1) is None
    with pytest.raises(ValueError, match="not a step time"):
        StepSample(batch=1.0, triple=TRIPLES[0], tp_size=1, step_s=0.0)
    with pytest.raises(ValueError, match="no measured round"):
        fit_step_time([])


@given(st.integers(0, 26), st.integers(1, 27), st.integers(0, 5))
def test_a_comparison_leaves_out_what_is_shared(at: int, count: int, seed: int) -> None:
    """A kind against itself is certain; a measured pair is as far apart as predicted; and never less certain than both
    predictions taken as independent."""
    samples = times("tree_batch", list(TRUTH.values()), noise=0.01, seed=seed)
    model = fit_step_time(samples[:count], form="tree_batch")
    kinds, reference = [sample.kind for sample in samples], samples[at].kind
    compared, alone = model.compare(kinds, reference), model.predict(kinds)
    assert compared.log_mean == pytest.approx(alone.log_mean - alone.log_mean[at], abs=1e-9)
    assert compared.log_deviation[at] == pytest.approx(0.0, abs=1e-6)
    assert (compared.log_deviation <= alone.log_deviation + alone.log_deviation[at] + 1e-9).all()


def test_a_scale_that_nobody_knows_makes_no_difference_uncertain() -> None:
    """One measurement: what was measured is known; its neighbour by comparison better than by itself."""
    samples = times("tree_batch", list(TRUTH.values()), noise=0.002)
    model = fit_step_time(samples[:1], form="tree_batch")
    near = RoundKind(batch=1.0, triple=Triple(num_steps=2, eagle_topk=1, num_draft_tokens=3), tp_size=1)
    far = RoundKind(batch=1.0, triple=Triple(num_steps=8, eagle_topk=8, num_draft_tokens=64), tp_size=1)
    deviations = model.compare([near, far], samples[0].kind).log_deviation
    assert 0 < deviations[0] < deviations[1]
