"""The settings between which a surface sampler chooses: which are open, which were measured with what value."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from results.prediction import AcceptLengths, Measured, PredictedSetting
from search_spaces.config import EngineConfig, layout_label
from search_spaces.rulings import Illegal
from sweeps.dimensions import Value, params_of
from sweeps.legal_space import LegalSpace


@dataclass(frozen=True, kw_only=True)
class SurfaceCandidate:
    """Values of the dimensions that the sampler chooses, and the server they end up as.

    `configs` are the configurations they may become by what the fallback chooses; empty when nothing is known of them.
    """

    params: Mapping[str, Value]
    setting: PredictedSetting
    configs: tuple[EngineConfig, ...] = ()


def candidates_of(legal: LegalSpace) -> tuple[SurfaceCandidate, ...]:
    """Every legal setting that speculates, also several that end up as one server, without its further flags: these
    are left to the fallback."""
    params: dict[str, Mapping[str, Value]] = {}
    configs: dict[str, list[EngineConfig]] = {}
    for asked in legal.space.settings():
        candidate = legal.candidate(asked)
        if isinstance(candidate, Illegal) or candidate.config.triple is None or candidate.config.layout is None:
            continue
        chosen = {name: value for name, value in params_of(asked).items() if not name.startswith("flag.")}
        key = json.dumps(chosen)
        params.setdefault(key, chosen)
        configs.setdefault(key, []).append(candidate.config)
    return tuple(
        SurfaceCandidate(params=params[key], setting=_predicted(found[0]), configs=tuple(found))
        for key, found in configs.items()
    )


def _predicted(config: EngineConfig) -> PredictedSetting:
    assert config.triple is not None
    assert config.layout is not None
    return PredictedSetting(layout=layout_label(config.layout), triple=config.triple, tp_size=config.tp_size)


def plain_candidates(settings: Iterable[PredictedSetting]) -> tuple[SurfaceCandidate, ...]:
    """Candidates for a study whose dimensions are called `layout`, `num_steps`, `eagle_topk`, `num_draft_tokens` and
    `tp_size`."""
    return tuple(
        SurfaceCandidate(
            params={
                "layout": setting.layout,
                "num_steps": setting.triple.num_steps,
                "eagle_topk": setting.triple.eagle_topk,
                "num_draft_tokens": setting.triple.num_draft_tokens,
                "tp_size": setting.tp_size,
            },
            setting=setting,
        )
        for setting in settings
    )


class Candidates:
    """The candidates that have an accept length. `is_open` says of a configuration whether it may still be launched."""

    def __init__(
        self,
        candidates: Sequence[SurfaceCandidate],
        accept_lengths: AcceptLengths,
        is_open: Callable[[EngineConfig], bool] | None,
    ) -> None:
        covered = [accept_lengths.of_setting(candidate.setting) is not None for candidate in candidates]
        self._is_open, self._accept_lengths = is_open, accept_lengths
        self.all = tuple(candidate for candidate, known in zip(candidates, covered, strict=True) if known)
        self.uncovered = tuple(candidate for candidate, known in zip(candidates, covered, strict=True) if not known)
        self._names = frozenset(name for candidate in candidates for name in candidate.params)
        self._settings = {self._key(candidate.params): candidate.setting for candidate in self.all}

    def may_run(self, candidate: SurfaceCandidate) -> bool:
        """Whether any configuration of the candidate is open."""
        return self._is_open is None or not candidate.configs or any(map(self._is_open, candidate.configs))

    def left(self, taken: Iterable[Mapping[str, Any]]) -> list[SurfaceCandidate]:
        """One candidate for each setting that may run and is not among the `taken` parameters."""
        keys = {self._key(params) for params in taken if self._names <= params.keys()}
        settings = {self._settings[key] for key in keys if key in self._settings}
        first: dict[PredictedSetting, SurfaceCandidate] = {}
        for candidate in self.all:
            if candidate.setting not in settings and candidate.setting not in first and self.may_run(candidate):
                first[candidate.setting] = candidate
        return list(first.values())

    def measured(self, trials: Iterable[FrozenTrial]) -> dict[int, Measured]:
        """Those of the trials that are finished ones of candidates, by number, in that order, each on all traced
        prompts (`AcceptLengths.over_all_prompts`)."""
        measured: dict[int, Measured] = {}
        for trial in trials:
            if trial.state != TrialState.COMPLETE:
                continue
            setting = self._settings.get(self._key(trial.params))
            if setting is not None and trial.value is not None and math.isfinite(trial.value) and trial.value > 0:
                setting = with_variant(setting, self._variant(trial.params))
                measured_as = trial.user_attrs.get("trial_id", trial.user_attrs.get("answered_from"))
                throughput = self._accept_lengths.over_all_prompts(trial.value, setting, measured_as)
                measured[trial.number] = Measured(setting=setting, throughput=throughput)
        return measured

    def _key(self, params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple(sorted((name, value) for name, value in params.items() if name in self._names))

    def _variant(self, params: Mapping[str, Any]) -> str:
        others = {name: value for name, value in sorted(params.items()) if name not in self._names}
        return json.dumps(others, default=str) if others else ""


def with_variant(setting: PredictedSetting, variant: str) -> PredictedSetting:
    """The setting with the further flags that it ran with."""
    return PredictedSetting(layout=setting.layout, triple=setting.triple, tp_size=setting.tp_size, variant=variant)
