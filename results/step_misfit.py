"""What an additive form misses: a Gaussian process on the logarithms of round times, half of it shared by similar kinds
and half of it each kind's own; and the noise of measurements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from results.step_terms import Floats, RoundKind

NOISE_LEVELS = (0.003, 0.01, 0.02, 0.04, 0.08)
MISFIT_LEVELS = (0.003, 0.01, 0.02, 0.04, 0.08, 0.16)
MISFIT_REACH = 1.0
"""Octaves of s, k, n and batch over which what the form misses is alike."""

MISFIT_SHARED = 0.5
"""The part of that variance which similar kinds share; the rest is each kind's own way."""


def scattered(kinds: Sequence[RoundKind], noise: float, misfit: float) -> Floats:
    """Covariance of measured logarithms around the form: what it misses, and the noise of each measurement."""
    covariance: Floats = misfit**2 * likeness(kinds, kinds) + noise**2 * np.eye(len(kinds))
    return covariance


def scatter(kinds: Sequence[RoundKind], surprises: Floats, spread: Floats) -> tuple[float, float]:
    """(noise, misfit) of the greatest likelihood on a grid, under a broad prior around 2 % and 4 %.

    `surprises` are logarithms of measured times over those that were expected before measuring. `spread`, [kinds,
    parameters], times its transpose is their covariance for not knowing the coefficients: what few measurements fit
    exactly is no sign of a form that is exact.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(likeness(kinds, kinds))
    told, spread = eigenvectors.T @ surprises, eigenvectors.T @ spread
    best, found = -np.inf, (0.02, 0.04)
    for noise, misfit in itertools.product(NOISE_LEVELS, MISFIT_LEVELS):
        likelihood = _log_density(told, misfit**2 * np.maximum(eigenvalues, 0.0) + noise**2, spread)
        likelihood -= math.log(noise / 0.02) ** 2 / 2 + math.log(misfit / 0.04) ** 2 / 2
        if likelihood > best:
            best, found = likelihood, (noise, misfit)
    return found


def _log_density(values: Floats, variances: Floats, spread: Floats) -> float:
    """Of a normal distribution around 0 with the covariance diag(variances) + spread spread', up to a constant.

    By the matrix determinant lemma and Woodbury's identity: a level of the grid costs no factorisation as large as the
    number of measurements.
    """
    scaled = spread / variances[:, None]
    root = np.linalg.cholesky(np.eye(spread.shape[1]) + spread.T @ scaled)
    explained = np.linalg.solve(root, scaled.T @ values)
    misses = float((values**2 / variances).sum()) - float(explained @ explained)
    volume = float(np.log(variances).sum()) / 2 + float(np.log(np.diag(root)).sum())
    return -misses / 2 - volume


def likeness(first: Sequence[RoundKind], second: Sequence[RoundKind]) -> Floats:
    """Correlation of what the form misses, [first, second]: near in octaves, less across groups, whole for itself."""
    here, there = _octaves(first), _octaves(second)
    distance = ((here[:, None, :] - there[None, :, :]) ** 2).sum(axis=2)
    groups = {kind.group: number for number, kind in enumerate((*first, *second))}
    mine, theirs = (np.array([groups[kind.group] for kind in kinds], dtype=np.int64) for kinds in (first, second))
    same = np.where(mine[:, None] == theirs[None, :], 1.0, 0.5)
    near = same * np.exp(-distance / (2 * MISFIT_REACH**2))
    own = (distance == 0) & (mine[:, None] == theirs[None, :])
    alike: Floats = MISFIT_SHARED * near + (1 - MISFIT_SHARED) * own
    return alike


def _octaves(kinds: Sequence[RoundKind]) -> Floats:
    columns = [(k.triple.num_steps, k.triple.eagle_topk, k.triple.num_draft_tokens, k.batch) for k in kinds]
    octaves: Floats = np.log2(np.array(columns, dtype=np.float64).reshape(len(kinds), 4))
    return octaves
