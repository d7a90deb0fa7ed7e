"""The Optuna seam: one study with one writer, in ask and tell. Optuna's storage is the truth of the search.

How a trial ends: COMPLETE with its value; PRUNED when the configuration itself failed (bad arguments, out of memory, a
crash), since TPE ranks pruned trials behind all others and so learns to avoid their like without an invented value;
FAIL when nothing was learned (infrastructure, no metric, interrupted, stale), which samplers do not look at.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from results.failures import Failure
from results.prediction import Comparison
from search_spaces.config import Setting
from sweeps.dimensions import params_of, setting_of
from sweeps.ledger import TEACHES
from sweeps.legal_sampler import LegalSampler
from sweeps.storage_errors import patient
from sweeps.study_trial import State, StudyTrial
from sweeps.surface_sampler import SurfaceSampler

logger = logging.getLogger(__name__)

_STATES: Mapping[TrialState, State] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "fail",
}


class SearchStudy:
    """An open study. One thread of one process writes; `stored_study.open_study` makes it.

    A storage that does not answer is tried again for a few seconds; then every method raises EnvironmentProblem.
    """

    def __init__(
        self,
        study: optuna.Study,
        distributions: Mapping[str, BaseDistribution],
        name: str,
        sampler: LegalSampler,
    ) -> None:
        self._study = study
        self._sampler = sampler
        self._distributions = dict(distributions)
        self.name = name

    def ask(self) -> StudyTrial:
        """The next trial: an enqueued one if there is any, else the sampler's choice. It is RUNNING until told.

        A trial that somebody enqueued with impossible values is told FAIL and the next one is taken.
        """
        while True:
            try:
                number = self._ask()
            except ValueError as error:
                # Optuna leaves a trial RUNNING when its parameters cannot be chosen
                logger.warning("a trial was refused by Optuna: %s", error)
                if not self._refuse_half_asked(str(error)):
                    raise
            else:
                return self._asked(number)

    def follow(self, sampler: SurfaceSampler) -> None:
        """Propose by the surface from now on; what cannot run or is measured already is replaced as ever."""
        self._sampler.follow(sampler)

    def stay_on_tp(self, when: Callable[[], bool]) -> None:
        """Prefer proposals at the TP size that ran last as long as `when` says that servers are switched."""
        self._sampler.stays_on_tp = when

    @patient
    def comparisons(self, sampler: SurfaceSampler, known: Collection[int]) -> tuple[Comparison, ...]:
        """Every finished trial, but those of the `known` numbers, beside what the sampler predicted for it from the
        trials before it."""
        return sampler.comparisons(self._study, known=known)

    @patient
    def expected_gain(self, sampler: SurfaceSampler) -> float | None:
        """The greatest relative improvement that the sampler expects of any setting left; None when it cannot tell."""
        return sampler.expected_gain(self._study)

    @patient
    def tell_value(self, number: int, value: float, attrs: Mapping[str, Any]) -> None:
        """COMPLETE with a finite value. `attrs` are stored first, so a complete trial always has them."""
        if not math.isfinite(value):
            raise ValueError(f"trial {number}: {value!r} is not a value to tell")
        self._tell(number, TrialState.COMPLETE, value, attrs)

    @patient
    def tell_failure(self, number: int, failure: Failure, attrs: Mapping[str, Any]) -> None:
        """PRUNED when the configuration is to blame, else FAIL; with the failure's kind, phase and message."""
        state = TrialState.PRUNED if failure.kind in TEACHES else TrialState.FAIL
        told = {"reason": failure.kind, "phase": failure.phase, "message": failure.message}
        self._tell(number, state, None, {**attrs, **told})

    @patient
    def requeue(self, trial: StudyTrial, *, attempt: int, reason: Literal["stale", "interrupted"]) -> None:
        """Enqueue the trial's setting once more, then tell it FAIL. Safe to repeat when the process died in between."""
        self._requeue(trial, attempt=attempt, reason=reason)

    @patient
    def tell_lost(self, number: int, message: str) -> None:
        """FAIL for a trial that is not tried again."""
        self._tell(number, TrialState.FAIL, None, {"reason": "gave_up", "message": message})

    @patient
    def enqueue(self, setting: Setting, *, role: str, label: str) -> bool:
        """Have `setting` asked next, once as `label` in the life of the study; False when it was enqueued before."""
        if any((trial.attrs.get("label"), trial.setting) == (label, setting) for trial in self._trials()):
            return False
        self._enqueue(setting, {"role": role, "label": label})
        return True

    @patient
    def trials(self) -> tuple[StudyTrial, ...]:
        """All trials in the order of their numbers."""
        return self._trials()

    @property
    @patient
    def waiting(self) -> int:
        """How many enqueued trials have not been asked for."""
        return sum(trial.state == TrialState.WAITING for trial in self._study.get_trials(deepcopy=False))

    @property
    @patient
    def best(self) -> StudyTrial | None:
        """The best complete trial; None when there is none."""
        try:
            return self._read(self._study.best_trial)
        except ValueError:
            return None

    @patient
    def attr(self, name: str) -> Any:
        """An attribute of the study; None when it was never set."""
        return self._study.user_attrs.get(name)

    @patient
    def set_attr(self, name: str, value: Any) -> None:
        self._study.set_user_attr(name, value)

    @patient
    def _ask(self) -> int:
        # what an earlier try left: an enqueued one still has all its parameters
        for trial in map(self._read, self._half_asked()):
            self._requeue(trial, attempt=trial.attempt - 1, reason="interrupted")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return self._study.ask(fixed_distributions=self._distributions).number

    @patient
    def _asked(self, number: int) -> StudyTrial:
        return self._read(self._frozen(number))

    @patient
    def _refuse_half_asked(self, message: str) -> bool:
        half = self._half_asked()
        for trial in half:
            self._tell(trial.number, TrialState.FAIL, None, {"reason": "refused", "message": message})
        return bool(half)

    # What follows has no patience of its own: the step that needs it is repeated as a whole.

    def _trials(self) -> tuple[StudyTrial, ...]:
        return tuple(self._read(trial) for trial in self._study.get_trials(deepcopy=False))

    def _requeue(self, trial: StudyTrial, *, attempt: int, reason: Literal["stale", "interrupted"]) -> None:
        repeated = any(other.retry_of == trial.number for other in self._trials())
        if trial.setting is not None and not repeated:
            attrs = {"attempt": attempt + 1, "retry_of": trial.number, "role": trial.role}
            self._enqueue(trial.setting, attrs | {k: v for k, v in trial.attrs.items() if k == "label"})
        self._tell(trial.number, TrialState.FAIL, None, {"reason": reason})

    def _tell(self, number: int, state: TrialState, value: float | None, attrs: Mapping[str, Any]) -> None:
        trial = self._frozen(number)
        if (trial.state, trial.value) == (state, value):
            return  # by a try whose answer was lost
        trial_id = trial._trial_id
        for name, item in attrs.items():
            self._study._storage.set_trial_user_attr(trial_id, name, item)
        self._study.tell(number, value, state)

    def _enqueue(self, setting: Setting, attrs: Mapping[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.enqueue_trial(dict(params_of(setting)), user_attrs=dict(attrs))

    def _frozen(self, number: int) -> FrozenTrial:
        trial = self._study.get_trials(deepcopy=False)[number]
        if trial.number != number:
            raise LookupError(f"trial {number} is not in study {self.name}")
        return trial

    def _half_asked(self) -> list[FrozenTrial]:
        running = [trial for trial in self._study.get_trials(deepcopy=False) if trial.state == TrialState.RUNNING]
        return [trial for trial in running if trial.params.keys() != self._distributions.keys()]

    def _read(self, trial: FrozenTrial) -> StudyTrial:
        # a trial whose driver died while asking has its parameters in part; an enqueued one has them all from the start
        params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        complete = params.keys() >= self._distributions.keys()
        return StudyTrial(
            number=trial.number,
            state=_STATES[trial.state],
            setting=setting_of({name: params[name] for name in self._distributions}) if complete else None,
            value=trial.value if trial.state == TrialState.COMPLETE else None,
            attrs=dict(trial.user_attrs),
        )
