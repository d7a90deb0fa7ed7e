"""Predicted throughput of settings: accept length from the surface, round time from measured rounds. Pure.

throughput = batch x accept length / round time. The accept length is exact for the traced prompts, so the uncertainty
is the round time's. Every measurement is compared with what was predicted for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from results.step_samples import StepSample
from results.step_terms import Floats, RoundKind
from results.step_time import StepTimeModel, fit_step_time
from results.traced_points import Points
from search_spaces.config import Triple, layout_label

NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True, order=True)
class PredictedSetting:
    """What is predicted for: a layout's label as the surface has it, numbers, TP size; `variant` is all else."""

    layout: str
    triple: Triple
    tp_size: int
    variant: str = ""


@dataclass(frozen=True, kw_only=True)
class AcceptLengths:
    """Accept lengths by layout label and triple. TP size does not matter for them; it is checked elsewhere."""

    values: Mapping[tuple[str, Triple], float] = field(repr=False)
    of_trials: Mapping[str, float] = field(default_factory=dict, repr=False)
    """By trial id, over the requests that a trial sent: not all traced prompts where its cell stopped early."""

    @classmethod
    def of(cls, points: Points, of_trials: Mapping[str, float]) -> AcceptLengths:
        """Of the traced points that count. `of_trials` may grow: it is looked at when it is needed."""
        values = {(layout_label(layout), triple): it.accept_length.value for (layout, triple), it in points.items()}
        return cls(values=values, of_trials=of_trials)

    def of_setting(self, setting: PredictedSetting) -> float | None:
        """None where no trace covers it."""
        return self.values.get((setting.layout, setting.triple))

    def over_all_prompts(self, throughput: float, setting: PredictedSetting, trial_id: str | None) -> float:
        """A trial's throughput as its rounds would give it on all traced prompts, which predictions are for."""
        whole, sent = self.of_setting(setting), self.of_trials.get(trial_id or "")
        return throughput if whole is None or sent is None else throughput * whole / sent


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished measurement of a setting's throughput, in any unit as long as it is always the same.

    On the prompts that accept lengths are of: see `AcceptLengths.over_all_prompts`.
    """

    setting: PredictedSetting
    throughput: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A throughput with its 95 % interval for another measurement of it (noise included)."""

    value: float
    low: float
    high: float

    def holds(self, measured: float) -> bool:
        return self.low <= measured <= self.high


class ThroughputModel:
    """Fitted to measurements at one load, and to `rounds` timed at any load. Settings without an accept length cannot
    be predicted."""

    def __init__(
        self,
        accept_lengths: AcceptLengths,
        measured: Sequence[Measured],
        batch: float,
        rounds: Sequence[StepSample] = (),
    ) -> None:
        """ValueError when there are no rounds and no measurement of a setting with an accept length."""
        self._accept_lengths, self._batch = accept_lengths, batch
        samples = [sample for one in measured if (sample := round_of(one, accept_lengths, batch)) is not None]
        self.step_time: StepTimeModel = fit_step_time([*rounds, *samples])

    def log_throughput(self, settings: Sequence[PredictedSetting]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the noise-free throughput's logarithm, NaN where there is no accept length."""
        predicted = self.step_time.predict([self._kind(setting) for setting in settings])
        return self._log_accept_lengths(settings) - predicted.log_mean, predicted.log_deviation

    def log_gain(self, settings: Sequence[PredictedSetting], over: PredictedSetting) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the logarithm of how many times the throughput of `over` each setting has.

        More certain than the throughputs themselves: what makes all settings slower or faster does not count.
        """
        compared = self.step_time.compare([self._kind(setting) for setting in settings], self._kind(over))
        lengths = self._log_accept_lengths([*settings, over])
        return lengths[:-1] - lengths[-1] - compared.log_mean, compared.log_deviation

    def draw_log_throughput(self, settings: Sequence[PredictedSetting], count: int, rng: np.random.Generator) -> Floats:
        """Draws from the posterior, [count, settings]."""
        times = self.step_time.draw([self._kind(setting) for setting in settings], count, rng)
        draws: Floats = self._log_accept_lengths(settings) - np.log(times)
        return draws

    def forecast(self, setting: PredictedSetting) -> Forecast | None:
        """What a measurement of the setting should give; None where there is no accept length."""
        if self._accept_lengths.of_setting(setting) is None:
            return None
        means, deviations = self.log_throughput([setting])
        mean, deviation = float(means[0]), math.hypot(float(deviations[0]), self.step_time.noise)
        return Forecast(
            value=math.exp(mean), low=math.exp(mean - 1.96 * deviation), high=math.exp(mean + 1.96 * deviation)
        )

    def _log_accept_lengths(self, settings: Sequence[PredictedSetting]) -> Floats:
        lengths = [self._accept_lengths.of_setting(setting) for setting in settings]
        logs: Floats = np.log([math.nan if length is None else self._batch * length for length in lengths])
        return logs

    def _kind(self, setting: PredictedSetting) -> RoundKind:
        return RoundKind(batch=self._batch, triple=setting.triple, tp_size=setting.tp_size, variant=setting.variant)


def round_of(one: Measured, accept_lengths: AcceptLengths, batch: float) -> StepSample | None:
    """The time of one round that a throughput at `batch` requests stands for; None without an accept length."""
    length = accept_lengths.of_setting(one.setting)
    if length is None or not (math.isfinite(one.throughput) and one.throughput > 0):
        return None
    return StepSample(
        batch=batch,
        triple=one.setting.triple,
        tp_size=one.setting.tp_size,
        step_s=batch * length / one.throughput,
        variant=one.setting.variant,
    )


def expected_improvement(means: Floats, deviations: Floats, best: float) -> Floats:
    """E[max(0, x - best)] of normal values; of logarithms, so a relative improvement. NaN stays NaN."""
    deviations = np.maximum(deviations, 1e-9)
    z = (means - best) / deviations
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([NORMAL.cdf(value) if not math.isnan(value) else math.nan for value in z.tolist()])
    improvement: Floats = deviations * (z * below + density)
    return np.maximum(improvement, 0.0)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One measurement, the trial of that `number`, beside what was predicted before it."""

    number: int
    setting: PredictedSetting
    forecast: Forecast
    measured: float

    @property
    def relative_error(self) -> float:
        return self.measured / self.forecast.value - 1


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Whether predictions are still followed; `reason` in one line when they are not."""

    trusted: bool
    reason: str | None = None


TRUST_WINDOW = 6
MAX_MISSES = 3
TOLERATED_ERROR = 0.10


def judge_predictions(comparisons: Sequence[Comparison]) -> Trust:
    """Distrust a model of whose last `TRUST_WINDOW` forecasts `MAX_MISSES` missed, each by more than 10 %.

    A miss is a measurement outside the forecast's 95 % interval. With a right model three such misses in six have a
    chance of a quarter of a percent, whatever their size.
    """
    recent = comparisons[-TRUST_WINDOW:]
    misses = [c for c in recent if not c.forecast.holds(c.measured) and abs(c.relative_error) > TOLERATED_ERROR]
    if len(misses) < MAX_MISSES:
        return Trust(trusted=True)
    worst = max(misses, key=lambda c: abs(c.relative_error))
    return Trust(
        trusted=False,
        reason=f"{len(misses)} of the last {len(recent)} predictions missed by more than {TOLERATED_ERROR:.0%}, "
        f"{worst.setting.layout} {worst.setting.triple} tp {worst.setting.tp_size} by {worst.relative_error:+.0%}",
    )
