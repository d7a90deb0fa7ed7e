"""A study in its storage: made once, and opened again only for what it was made for. Part of the Optuna seam."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.dimensions import Value, dimensions_of
from sweeps.ledger import Ledger
from sweeps.legal_sampler import LegalSampler
from sweeps.legal_space import LegalSpace
from sweeps.samplers import derive_seed, make_sampler
from sweeps.storage_errors import STORAGE_ERRORS, reason_of
from sweeps.study import SearchStudy

Direction = Literal["maximize", "minimize"]

IDENTITY = "specsweep.identity"
"""The study attribute that says what the study is about."""


def open_study(
    storage_url: str,
    name: str,
    *,
    legal: LegalSpace,
    ledger: Ledger,
    direction: Direction,
    sampler: str,
    seed: int,
    identity: Mapping[str, Any],
) -> SearchStudy:
    """Create the study or open it again.

    `identity` says what the study is about beyond its space (target, workload, objective), as plain values. InputError
    when the study was made for another space, identity or direction, naming the first difference; nothing is written
    then. EnvironmentProblem when the storage does not answer.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    dimensions = dimensions_of(legal.space)
    distributions = {key: distribution_of(key, values) for key, values in dimensions.items()}
    wanted = {**{f"space.{key}": list(values) for key, values in dimensions.items()}, **identity}
    try:
        storage = optuna.storages.RDBStorage(storage_url, skip_compatibility_check=False)
        existing = {summary.study_name for summary in optuna.get_all_study_summaries(storage, include_best_trial=False)}
        if name not in existing:
            made = optuna.create_study(storage=storage, study_name=name, direction=direction)
            made.set_user_attr(IDENTITY, json.loads(json.dumps(wanted)))
        study = optuna.load_study(study_name=name, storage=storage)
        _check_same(study, name, wanted, direction)
        trials = len(study.get_trials(deepcopy=False))
    except (*STORAGE_ERRORS, RuntimeError, ImportError) as error:
        raise EnvironmentProblem(f"search.storage: {_without_password(storage_url)}: {reason_of(error)}") from None
    inner = make_sampler(sampler, seed, trials, dimensions)
    legal_sampler = LegalSampler(inner, distributions, legal, ledger, derive_seed(seed, trials))
    study.sampler = legal_sampler
    return SearchStudy(study, distributions, name, legal_sampler)


def distribution_of(name: str, values: Sequence[Value]) -> BaseDistribution:
    """Whole numbers in equal steps keep their order; everything else is a choice. InputError for equal choices."""
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(whole) == len(values) and len(set(whole)) == len(whole):
        ordered = sorted(whole)
        steps = {after - before for before, after in itertools.pairwise(ordered)}
        if len(steps) <= 1:
            return IntDistribution(ordered[0], ordered[-1], step=steps.pop() if steps else 1)
    if len(set(values)) < len(values):
        raise InputError(f"space.{name}: {list(values)} holds values that a study cannot tell apart")
    return CategoricalDistribution(tuple(values))


def _check_same(study: optuna.Study, name: str, wanted: Mapping[str, Any], direction: Direction) -> None:
    # a driver killed right after creating the study left it without identity and without trials
    there = study.user_attrs.get(IDENTITY)
    wanted = json.loads(json.dumps(wanted))
    if there is None:
        if study.get_trials(deepcopy=False):
            raise InputError(f"study {name!r}: was not made by specsweep; give another `study` name")
        study.set_user_attr(IDENTITY, wanted)
        there = wanted
    changed = [key for key in {**there, **wanted} if there.get(key) != wanted.get(key)]
    if changed:
        first, *others = sorted(changed)
        before, now = json.dumps(there.get(first)), json.dumps(wanted.get(first))
        more = f" (so did {', '.join(others)})" if others else ""
        raise InputError(
            f"study {name!r}: {first} was {before} and is now {now}{more}; give another `study` name, such as {name}-2"
        )
    if study.direction.name.lower() != direction:
        raise InputError(
            f"study {name!r}: objective.direction was {study.direction.name.lower()} and is now {direction}; "
            f"give another `study` name, such as {name}-2"
        )


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://***@{tail}" if at else url
