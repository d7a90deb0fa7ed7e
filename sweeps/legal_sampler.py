"""A sampler around any Optuna sampler: never an illegal setting, and no server that has been measured already.

The inner sampler proposes over the whole static space and learns from the trials as usual. What it proposes is replaced
only when it cannot run or would measure nothing new: first by further proposals, then by the nearest setting that is
legal and new. So the Optuna dashboard, `best_trials` and the sampler's own model keep their meaning.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, BruteForceSampler, GPSampler, GridSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.dimensions import params_of, setting_of
from sweeps.ledger import Ledger
from sweeps.legal_space import Candidate, LegalSpace

PROPOSALS = 6
PROPOSALS_ON_TP = 16
"""How often the inner sampler is asked before the nearest legal setting is taken; it may propose the same again.
More often where another TP size would cost a launch: sixteen proposals elsewhere are its will, not chance."""


class LegalSampler(BaseSampler):
    """Wraps `inner`. One study, one process: `ledger` must know every launch, running ones included.

    While `stays_on_tp`, a proposal at the TP size that ran last is taken before one at another size, because servers of
    one size can be switched and another size costs a launch.
    """

    def __init__(
        self,
        inner: BaseSampler,
        distributions: Mapping[str, BaseDistribution],
        legal: LegalSpace,
        ledger: Ledger,
        seed: int,
    ) -> None:
        self._inner = inner
        self._distributions = dict(distributions)
        self._legal = legal
        self._ledger = ledger
        self.stays_on_tp: Callable[[], bool] = lambda: False
        self._draw = random.Random(seed)  # noqa: S311 - ties, no secrets

    def follow(self, inner: BaseSampler) -> None:
        """Wrap another sampler from now on."""
        self._inner = inner

    def reseed_rng(self) -> None:
        self._inner.reseed_rng()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The whole space; nothing for an enqueued trial, whose parameters are fixed."""
        return {} if self._fixed(trial).keys() >= self._distributions.keys() else self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """All parameters of one legal setting; empty when nothing is left to measure (the caller must not ask then)."""
        if not search_space:
            return {}
        seen_before: Candidate | None = None
        elsewhere: dict[str, Any] | None = None
        last: dict[str, Any] = {}
        # GP takes seconds to find its one best point and finds the same again
        stays_on_tp = self.stays_on_tp()
        proposals = PROPOSALS_ON_TP if stays_on_tp else PROPOSALS
        for _ in range(1 if isinstance(self._inner, GPSampler) else proposals):
            proposal = self._propose(study, trial)
            candidate = self._legal.candidate(setting_of(proposal))
            if isinstance(candidate, Candidate):
                if self._ledger.is_unseen(candidate.config):
                    if not stays_on_tp or self._ledger.last_tp_size in (None, candidate.config.tp_size):
                        return proposal
                    elsewhere = elsewhere or proposal
                if seen_before is None and self._ledger.is_open(candidate.config):
                    seen_before = candidate
            last = proposal
        if elsewhere is not None:
            return elsewhere
        if seen_before is not None:
            return dict(params_of(seen_before.setting))
        wanted = setting_of(last)
        for accept in (self._ledger.is_unseen, self._ledger.is_open):
            nearest = self._legal.nearest(wanted, accept, self._draw)
            if nearest is not None:
                return dict(params_of(nearest.setting))
        return last

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """For parameters of trials that somebody else enqueued in part; legality is then the caller's to check."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Grid and brute force only look whether to stop `optimize`, which raises in ask and tell; our loop decides."""
        if not isinstance(self._inner, GridSampler | BruteForceSampler):
            self._inner.after_trial(study, trial, state, values)

    def _propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """One full proposal, as `Trial.suggest_*` would have put it together. Nothing is stored."""
        # GridSampler notes its choice in the trial's attributes, after `trial` was read
        view = study._storage.get_trial(trial._trial_id)
        view.params, view.distributions = {}, {}
        relative_space = self._inner.infer_relative_search_space(study, view)
        relative = self._inner.sample_relative(study, view, relative_space)
        params: dict[str, Any] = {}
        for name, distribution in self._distributions.items():
            if name in relative:
                value = relative[name]
            elif distribution.single():
                value = optuna.distributions._get_single_value(distribution)
            else:
                value = self._inner.sample_independent(study, view, name, distribution)
            params[name] = value
            # BruteForceSampler looks at what the trial has so far
            view.params, view.distributions = dict(params), {**view.distributions, name: distribution}
        return params

    def _fixed(self, trial: FrozenTrial) -> dict[str, Any]:
        fixed: dict[str, Any] = trial.system_attrs.get("fixed_params", {})
        return fixed
