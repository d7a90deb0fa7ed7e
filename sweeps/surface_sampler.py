"""An Optuna sampler that knows the acceptance surface: it proposes the setting most likely to win, priced in seconds.

Accept lengths come from traces; what is left to learn is the time of a round, which a model predicts for all settings
from a few measured ones (`results.prediction`). Each proposal has the greatest expected improvement per second: another
setting of a running server costs a switch, another TP size a launch. Works with plain `study.optimize` as well:

    sampler = SurfaceSampler(accept_lengths, candidates, batch=8)
    optuna.create_study(direction="maximize", sampler=sampler).optimize(objective)

A server that is measured at several loads tells more than the objective does: `learn` takes the rounds of the others.
The objective is a throughput, maximised. Dimensions that the candidates do not have are left to the fallback, TPE; so
is everything once predictions have missed too often, or when the candidates have no accept length.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from results.prediction import (
    AcceptLengths,
    Comparison,
    Measured,
    PredictedSetting,
    ThroughputModel,
    Trust,
    expected_improvement,
    judge_predictions,
)
from results.step_samples import StepSample
from results.step_terms import Floats
from search_spaces.config import EngineConfig
from sweeps.dimensions import Value
from sweeps.surface_candidates import Candidates, SurfaceCandidate, with_variant

LOG = logging.getLogger(__name__)

Acquisition = Literal["expected_improvement", "thompson", "upper_bound"]
"""The first is chosen: the fewest measurements by means on the worlds of benchmarks/search_grid.py to choose by (seeds
from 100 on, invented machines too). On those reported, the last does as well (search_grid.json)."""

WORTH_A_LAUNCH = 0.001
"""The expected relative improvement below which another TP size is left alone as long as this one has settings."""

WORTH_STAYING = 0.005
"""The expected relative improvement at the TP size that runs above which it is not left for another one: coming back
would be one more launch."""

COMPARED = 6
"""How many of the last measurements are compared with what would have been predicted for them."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Seconds that a measurement, a switch of a running server and a launch take."""

    measure_s: float = 60.0
    switch_s: float = 1.0
    launch_s: float = 300.0


class SurfaceSampler(BaseSampler):
    """See the module. `candidates` are the legal settings; `batch` is how many requests run at a time.

    `switches` says, at each proposal, whether a running server may be switched; where it may not, another setting costs
    a launch wherever it is. `is_open` says whether a configuration may still be launched, for reasons that no trial of
    the study shows: what is closed is neither proposed nor hoped for. By default all may.
    """

    def __init__(
        self,
        accept_lengths: AcceptLengths,
        candidates: Sequence[SurfaceCandidate],
        *,
        batch: float = 1.0,
        prices: Prices | None = None,
        switches: Callable[[], bool] = lambda: True,
        acquisition: Acquisition = "expected_improvement",
        fallback: BaseSampler | None = None,
        seed: int = 0,
        is_open: Callable[[EngineConfig], bool] | None = None,
    ) -> None:
        self._accept_lengths, self._batch = accept_lengths, batch
        self._prices, self._switches = prices or Prices(), switches
        self._acquisition = acquisition
        self._fallback = fallback or TPESampler(seed=seed)
        self._rng = np.random.default_rng(seed)
        self._candidates = Candidates(candidates, accept_lengths, is_open)
        self._plans: dict[int, Mapping[str, Value]] = {}
        self._models: dict[tuple[tuple[StepSample, ...], tuple[Measured, ...]], ThroughputModel] = {}
        self._rounds: list[tuple[int, StepSample]] = []
        self.trust = Trust(trusted=True)
        self.findings: list[str] = []
        if self._candidates.uncovered:
            left = len(self._candidates.uncovered)
            self.findings.append(f"{left} of {len(candidates)} settings are not covered by a trace: left to TPE")

    @property
    def covers_all(self) -> bool:
        """Whether every candidate that may still run has an accept length."""
        return bool(self._candidates.all) and not any(map(self._candidates.may_run, self._candidates.uncovered))

    def learn(self, rounds: Iterable[StepSample], *, before: int = 0) -> None:
        """Rounds that were timed elsewhere, such as at another load, and were known before the trial of that number."""
        self._rounds += [(before, sample) for sample in rounds]

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self._fallback.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing while the model is followed: known dimensions then come one by one, out of one planned setting."""
        plan = self._plan(study, trial)
        return {} if plan is not None else self._fallback.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._fallback.sample_relative(study, trial, search_space) if search_space else {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        plan = self._plan(study, trial)
        if plan is not None and param_name in plan:
            value = plan[param_name]
            if param_distribution._contains(param_distribution.to_internal_repr(value)):
                return value
        return self._fallback.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._fallback.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._plans.pop(trial.number, None)
        self._fallback.after_trial(study, trial, state, values)

    def comparisons(
        self, study: Study, last: int | None = None, *, known: Collection[int] = ()
    ) -> tuple[Comparison, ...]:
        """Each of the last finished trials (all by default) beside what the trials before it predicted for it. Those of
        the `known` numbers are left out: each takes a fit."""
        told = self._told(study)
        measured = list(told.values())
        compared = []
        for at, number in list(enumerate(told))[max(1, len(told) - (last or len(told))) :]:
            one = measured[at]
            model = self._model(measured[:at], before=number) if number not in known else None
            # another TP size than all before is a guess within a factor of two, which says nothing about the model
            if model is None or all(one.setting.tp_size != before.setting.tp_size for before in measured[:at]):
                continue
            forecast = model.forecast(one.setting)
            if forecast is not None:
                compared.append(
                    Comparison(number=number, setting=one.setting, forecast=forecast, measured=one.throughput)
                )
        return tuple(compared)

    def expected_gain(self, study: Study) -> float | None:
        """The greatest expected relative improvement that is left; None without a measurement or a trusted model."""
        measured = list(self._told(study).values())
        model = self._model(measured)
        open_ones = self._open(study)
        self._judge(study)
        if model is None or not self._known(measured) or not open_ones or not self.trust.trusted:
            return None
        return float(self._improvements(model, measured, open_ones).max())

    def _plan(self, study: Study, trial: FrozenTrial) -> Mapping[str, Value] | None:
        """The planned values of a trial, chosen once; None when the fallback is to choose."""
        if trial.number not in self._plans:
            chosen = self._choose(study)
            if chosen is None:
                return None
            self._plans[trial.number] = chosen.params
        return self._plans[trial.number]

    def _choose(self, study: Study) -> SurfaceCandidate | None:
        if not self._candidates.all or study.directions != [StudyDirection.MAXIMIZE]:
            return None
        self._judge(study)
        if not self.trust.trusted:
            return None
        open_ones = self._open(study)
        if not open_ones:
            return None
        measured = list(self._told(study).values())
        model = self._model(measured)
        if model is None:
            return self._first(open_ones)
        if not self._known(measured):
            return self._likeliest(model, open_ones)
        improvements = self._improvements(model, measured, open_ones)
        running = _running_tp_size(study)
        near = np.array([candidate.setting.tp_size == running for candidate in open_ones])
        launch_s = self._prices.launch_s
        switch_s = self._prices.switch_s if self._switches() else launch_s
        worth = improvements / (self._prices.measure_s + np.where(near, switch_s, launch_s))
        if near.any() and switch_s < launch_s:
            stays = improvements[near].max() > WORTH_STAYING
            worth = np.where(near | (~stays & (improvements > WORTH_A_LAUNCH)), worth, -1.0)
        return open_ones[int(np.argmax(worth))]

    def _judge(self, study: Study) -> None:
        judged = judge_predictions(self.comparisons(study, last=COMPARED))
        if self.trust.trusted and not judged.trusted:
            LOG.warning("the surface model is not followed any more: %s", judged.reason)
            self.findings.append(f"the model is not followed any more: {judged.reason}")
            self.trust = judged

    def _model(self, measured: Sequence[Measured], *, before: int | None = None) -> ThroughputModel | None:
        """Fitted once for the same measurements: the comparisons look at all that went before a trial."""
        rounds = tuple(sample for since, sample in self._rounds if before is None or since <= before)
        if not rounds and not self._known(measured):
            return None
        key = rounds, tuple(measured)
        if key not in self._models:
            self._models[key] = ThroughputModel(self._accept_lengths, measured, self._batch, rounds)
        return self._models[key]

    def _known(self, measured: Sequence[Measured]) -> list[PredictedSetting]:
        """What was measured and has an accept length."""
        return [one.setting for one in measured if self._accept_lengths.of_setting(one.setting) is not None]

    def _improvements(
        self, model: ThroughputModel, measured: Sequence[Measured], open_ones: Sequence[SurfaceCandidate]
    ) -> Floats:
        """How much better than the best measured setting each candidate is expected to be, relative."""
        variant = max(measured, key=lambda one: one.throughput).setting.variant
        settings = [with_variant(candidate.setting, variant) for candidate in open_ones]
        known = self._known(measured)
        if self._acquisition == "thompson":
            drawn = model.draw_log_throughput([*settings, *known], 1, self._rng)[0]
            gains: Floats = np.maximum(drawn[: len(settings)] - drawn[len(settings) :].max(), 0.0)
            return gains if gains.any() else np.exp(drawn[: len(settings)] - drawn.max())
        best = known[int(np.argmax(model.log_throughput(known)[0]))]
        means, deviations = model.log_gain(settings, best)
        if self._acquisition == "upper_bound":
            bounds: Floats = np.maximum(means + deviations, 1e-6)
            return bounds
        return expected_improvement(means, deviations, 0.0)

    def _likeliest(self, model: ThroughputModel, open_ones: Sequence[SurfaceCandidate]) -> SurfaceCandidate:
        """Without any measurement at this load: the best by rounds that were timed at others."""
        sizes = {sample.tp_size for _, sample in self._rounds}
        near = [candidate for candidate in open_ones if candidate.setting.tp_size in sizes] or list(open_ones)
        return near[int(np.argmax(model.log_throughput([candidate.setting for candidate in near])[0]))]

    def _first(self, open_ones: Sequence[SurfaceCandidate]) -> SurfaceCandidate:
        """Without any measurement: a good accept length for few tokens, on the smallest TP size."""
        smallest = min(candidate.setting.tp_size for candidate in open_ones)

        def worth(candidate: SurfaceCandidate) -> float:
            triple = candidate.setting.triple
            length = self._accept_lengths.of_setting(candidate.setting) or 0.0
            return length / (1 + 0.1 * triple.num_steps + 0.01 * self._batch * triple.num_draft_tokens)

        return max((c for c in open_ones if c.setting.tp_size == smallest), key=worth)

    def _open(self, study: Study) -> list[SurfaceCandidate]:
        """Candidates that may run and that no trial has, not even a failed or a running one, nor a plan under way."""
        taken = [trial.params for trial in study.get_trials(deepcopy=False)]
        return self._candidates.left([*taken, *self._plans.values()])

    def _told(self, study: Study) -> dict[int, Measured]:
        """Finished trials of candidates by number, in that order."""
        return self._candidates.measured(study.get_trials(deepcopy=False))


def _running_tp_size(study: Study) -> int | None:
    """The TP size of the trial that was begun last: what runs on one group of GPUs."""
    begun = (
        trial.params["tp_size"] for trial in reversed(study.get_trials(deepcopy=False)) if "tp_size" in trial.params
    )
    return next(begun, None)
