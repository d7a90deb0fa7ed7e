"""Optuna's samplers by name, seeded. Imported only when a study is opened."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    CmaEsSampler,
    GPSampler,
    GridSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)

from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.dimensions import Value

Dimensions = Mapping[str, Sequence[Value]]


def _tpe(seed: int) -> BaseSampler:
    return TPESampler(seed=seed, multivariate=True, constant_liar=True)


SAMPLERS: Mapping[str, Callable[[int, Dimensions], BaseSampler]] = {
    "tpe": lambda seed, _: _tpe(seed),
    "random": lambda seed, _: RandomSampler(seed=seed),
    "grid": lambda seed, dimensions: GridSampler({k: list(v) for k, v in dimensions.items()}, seed=seed),
    "brute_force": lambda seed, _: BruteForceSampler(seed=seed),
    "qmc": lambda seed, _: QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False),
    "gp": lambda seed, _: GPSampler(seed=seed, warn_independent_sampling=False),
    "cmaes": lambda seed, _: CmaEsSampler(seed=seed, warn_independent_sampling=False),
    "nsgaii": lambda seed, _: NSGAIISampler(seed=seed),
    "nsgaiii": lambda seed, _: NSGAIIISampler(seed=seed),
    # a study follows its surface once it has one, and TPE until then (`sweeps.surface_search`)
    "surface": lambda seed, _: _tpe(seed),
    "auto": lambda seed, _: _tpe(seed),
}

NEEDS: Mapping[str, tuple[str, ...]] = {"cmaes": ("cmaes",), "gp": ("scipy", "torch"), "qmc": ("scipy",)}
"""Packages that Optuna does not bring along for these samplers."""


def make_sampler(name: str, seed: int, trials: int, dimensions: Dimensions) -> BaseSampler:
    """The sampler for a study that holds `trials` trials already.

    Optuna does not store a sampler's state: with the same seed every restart would repeat the start-up trials. So the
    seed depends on the number of trials too; except for the grid, whose numbering of its points comes from the seed.
    InputError for an unknown name, EnvironmentProblem when the sampler's own dependency is missing.
    """
    if name not in SAMPLERS:
        raise InputError(f"search.sampler: {name!r} is unknown; legal: {', '.join(sorted(SAMPLERS))}")
    # Optuna imports these late, in the first ask that needs them
    for package in NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise EnvironmentProblem(f"search.sampler: {name} needs the package {package}, which is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return SAMPLERS[name](seed if name == "grid" else derive_seed(seed, trials), dimensions)


def derive_seed(seed: int, trials: int) -> int:
    """Another 32-bit seed for every number of trials, the base seed itself for none."""
    return (seed + trials * 0x9E3779B1) % 2**32
