"""T(batch, num_steps, topk, draft tokens, tp): a round's time from a few measured ones, with its uncertainty.

Coefficients are positive, so their logarithms are estimated: the most probable ones given what is known beforehand
(`step_prior`), by Gauss-Newton steps on the logarithm of the time; their uncertainty is the posterior covariance there
(Laplace's approximation). TP sizes have coefficients of their own that a prior ties together. What the additive form
misses is taken up by a Gaussian process on the residuals (`step_misfit`), so that predictions near a measurement follow
it and no kind counts as known before it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from results.step_design import Design, Groups
from results.step_misfit import likeness, scatter, scattered
from results.step_prior import GROUP_DEVIATION, GROUP_TERM_DEVIATION, prior
from results.step_samples import StepSample
from results.step_terms import DEFAULT_FORM, FORMS, Floats, RoundKind

MIN_TO_CHOOSE = 12
"""Measured settings from which on the form is chosen by cross-validation."""

_ITERATIONS = 25


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Logarithms of times: mean and standard deviation, one entry per kind asked for."""

    log_mean: Floats
    log_deviation: Floats

    @property
    def median_s(self) -> Floats:
        times: Floats = np.exp(self.log_mean)
        return times


@dataclass(frozen=True, kw_only=True)
class StepTimeModel:
    """A fitted model. `noise` and `misfit` are relative; `cross_validated` is the form's error on left-out settings.

    Made by `fit_step_time`. With no samples it cannot be made: there is no scale.
    """

    form: str
    kinds: tuple[RoundKind, ...]
    log_times: Floats = field(repr=False)
    groups: Groups
    parameters: Floats = field(repr=False)
    covariance: Floats = field(repr=False)
    noise: float
    misfit: float
    cross_validated: float | None = None

    def predict(self, kinds: Sequence[RoundKind]) -> Prediction:
        """The time of rounds, of the noise-free mean: another measurement scatters around it by `noise`."""
        posterior = self._posterior(kinds)
        variance = posterior.of_parameters(self.covariance) + posterior.left + self._of_unknown_group(kinds)
        return Prediction(log_mean=posterior.mean, log_deviation=np.sqrt(variance))

    def compare(self, kinds: Sequence[RoundKind], reference: RoundKind) -> Prediction:
        """How many times as long as one round of `reference` the others take. What both share does not count: a scale
        that nobody knows makes no difference uncertain."""
        posterior = self._posterior([*kinds, reference])
        to_reference = self.misfit**2 * likeness([*kinds, *self.kinds], [reference])[:, 0]
        shared = to_reference[: len(kinds)] - posterior.weights[:-1] @ to_reference[len(kinds) :]
        difference = _Posterior(
            mean=posterior.mean[:-1] - posterior.mean[-1],
            gradient=posterior.gradient[:-1] - posterior.gradient[-1],
            weights=posterior.weights[:-1] - posterior.weights[-1],
            left=np.maximum(0.0, posterior.left[:-1] + posterior.left[-1] - 2 * shared),
        )
        variance = difference.of_parameters(self.covariance) + difference.left + self._of_unknown_group(kinds)
        return Prediction(log_mean=difference.mean, log_deviation=np.sqrt(variance))

    def draw(self, kinds: Sequence[RoundKind], count: int, rng: np.random.Generator) -> Floats:
        """Times under `count` draws of the coefficients, [count, kinds]; what the form misses is drawn per kind."""
        posterior = self._posterior(kinds)
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(len(self.covariance)))
        draws = rng.standard_normal((count, len(root))) @ root.T @ posterior.gradient.T
        draws += rng.standard_normal(draws.shape) * np.sqrt(posterior.left + self._of_unknown_group(kinds))
        times: Floats = np.exp(posterior.mean + draws)
        return times

    def _posterior(self, kinds: Sequence[RoundKind]) -> _Posterior:
        """What the form says, and what it misses there given the residuals; both depend on the parameters."""
        mean, gradient = self._design(kinds).evaluate(self.parameters)
        known, known_gradient = self._design(self.kinds).evaluate(self.parameters)
        across = self.misfit**2 * likeness(kinds, self.kinds)
        around = scattered(self.kinds, self.noise, self.misfit)
        weights = np.linalg.solve(around, across.T).T.astype(np.float64)
        return _Posterior(
            mean=mean + weights @ (self.log_times - known),
            gradient=gradient - weights @ known_gradient,
            weights=weights,
            left=np.maximum(0.0, self.misfit**2 - (weights * across).sum(axis=1)),
        )

    def _of_unknown_group(self, kinds: Sequence[RoundKind]) -> Floats:
        """Variance of kinds whose group was not measured: they have the first group's coefficients and no others."""
        unknown = np.array([kind.group not in self.groups for kind in kinds])
        variance: Floats = unknown * (GROUP_DEVIATION**2 + GROUP_TERM_DEVIATION**2)
        return variance

    def coefficients(self, tp_size: int, variant: str = "") -> dict[str, float]:
        """Seconds per unit of each term, most probable values. ValueError for a group that was not measured."""
        terms = len(FORMS[self.form])
        logs = self.parameters[:terms].copy()
        number = self.groups.index((tp_size, variant))
        if number:
            factors = self.parameters[terms:].reshape(len(self.groups) - 1, terms + 1)[number - 1]
            logs += factors[0] + factors[1:]
        return dict(zip(FORMS[self.form], np.exp(logs).tolist(), strict=True))

    def _design(self, kinds: Sequence[RoundKind]) -> Design:
        return Design(FORMS[self.form], self.groups, kinds)


def fit_step_time(samples: Sequence[StepSample], *, form: str | None = None) -> StepTimeModel:
    """Fit to at least one sample, in the form of the least cross-validated error; with few samples the default one.

    ValueError without samples.
    """
    if not samples:
        raise ValueError("no measured round to fit to")
    kinds = tuple(sample.kind for sample in samples)
    logs = np.log([sample.step_s for sample in samples])
    if form is not None:
        return _fit(form, kinds, logs)
    if len({kind.triple for kind in kinds}) < MIN_TO_CHOOSE:
        return _fit(DEFAULT_FORM, kinds, logs)
    errors = {name: cross_validated_error(samples, name) for name in FORMS}
    best = min(errors, key=lambda name: errors[name])
    return replace(_fit(best, kinds, logs), cross_validated=errors[best])


def cross_validated_error(samples: Sequence[StepSample], form: str, folds: int = 8) -> float:
    """Root mean square of the relative error on settings that were left out, whole settings at a time.

    How much rounds scatter around the form is estimated once, from all of them; the coefficients from those kept.
    """
    triples = sorted({sample.triple for sample in samples})
    if len(triples) < 2:
        return float("inf")
    fold_of = {triple: i % folds for i, triple in enumerate(triples)}
    kinds, logs = [sample.kind for sample in samples], np.log([sample.step_s for sample in samples])
    whole = _fit(form, tuple(kinds), logs)
    of = np.array([fold_of[kind.triple] for kind in kinds])
    errors: list[float] = []
    for fold in range(min(folds, len(triples))):
        kept, left = np.flatnonzero(of != fold), np.flatnonzero(of == fold)
        model = _fit(form, tuple(kinds[i] for i in kept), logs[kept], scatters=(whole.noise, whole.misfit))
        errors += (model.predict([kinds[i] for i in left]).log_mean - logs[left]).tolist()
    return float(np.sqrt(np.mean(np.square(errors))))


@dataclass(frozen=True, kw_only=True)
class _Posterior:
    """Logarithms of times at some kinds: mean; gradient by the parameters; weights of the residuals; the variance that
    is left of what the form misses."""

    mean: Floats
    gradient: Floats
    weights: Floats
    left: Floats

    def of_parameters(self, covariance: Floats) -> Floats:
        """The variance that comes from not knowing the coefficients."""
        variance: Floats = np.einsum("ij,jk,ik->i", self.gradient, covariance, self.gradient)
        return variance


def _fit(
    form: str, kinds: tuple[RoundKind, ...], logs: Floats, scatters: tuple[float, float] | None = None
) -> StepTimeModel:
    """`scatters` are noise and misfit where they are known; else they are estimated from the residuals of two fits."""
    groups = tuple(sorted({kind.group for kind in kinds}))
    design = Design(FORMS[form], groups, kinds)
    noise, misfit = scatters or (0.02, 0.04)
    before = prior(FORMS[form], design, logs)
    unknown = np.linalg.inv(np.linalg.cholesky(before[1])).T  # a root of what is not known of the parameters before
    start = before[0]
    for _ in range(2 if scatters is None else 1):
        precision = np.linalg.inv(scattered(kinds, noise, misfit)).astype(np.float64)
        parameters, covariance = _most_probable(design, logs, precision, before, start)
        if scatters is None:
            predicted, gradient = design.evaluate(parameters)
            surprises = logs - predicted + gradient @ (parameters - before[0])
            noise, misfit = scatter(kinds, surprises, gradient @ unknown)
        start = parameters
    return StepTimeModel(
        form=form,
        kinds=kinds,
        log_times=logs,
        groups=groups,
        parameters=parameters,
        covariance=covariance,
        noise=noise,
        misfit=misfit,
    )


def _most_probable(
    design: Design, logs: Floats, weight: Floats, before: tuple[Floats, Floats], start: Floats
) -> tuple[Floats, Floats]:
    """Levenberg-Marquardt on the residuals, weighted by the inverse of their covariance, and the distance from what was
    known `before` (means, precision); parameters and covariance."""
    means, precision = before

    def loss(at: Floats) -> float:
        misses, moved = logs - design.evaluate(at)[0], at - means
        return float(misses @ weight @ misses + moved @ precision @ moved)

    at, damping = start, 1e-3
    now = loss(at)
    for _ in range(_ITERATIONS):
        predicted, gradient = design.evaluate(at)
        hessian = gradient.T @ weight @ gradient + precision
        slope = gradient.T @ weight @ (logs - predicted) - precision @ (at - means)
        step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), slope)
        candidate = at + np.clip(step, -3.0, 3.0)
        then = loss(candidate)
        if then < now:
            finished = now - then < 1e-6 * (1 + now)
            at, now, damping = candidate, then, max(damping / 5, 1e-9)
            if finished:
                break
        else:
            damping *= 10
    gradient = design.evaluate(at)[1]
    covariance = np.linalg.inv(gradient.T @ weight @ gradient + precision).astype(np.float64)
    return at, covariance
