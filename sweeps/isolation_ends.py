"""The two ends of an isolation: the suspect and the reference, chosen from what the user says and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import yaml
from pydantic import ValidationError

from results.attribution import DEFAULT_MARGIN
from results.corners import PARALLEL_FLAGS
from results.probed_feed import TrainedOn
from results.ranked_settings import RankedSetting
from results.ranking import Ranking
from results.records import TrialRecord
from search_spaces.config import EngineConfig, Setting, Taps, layout_label
from search_spaces.errors import InputError
from search_spaces.layouts import parse_layout_label
from search_spaces.rulings import Illegal, RuleContext
from search_spaces.sglang_rules import resolve_setting
from sweeps.planning import SweepPlan
from sweeps.spec_problems import explain
from sweeps.spec_space import SettingSpec
from sweeps.spec_yaml import show_path

MORE = DEFAULT_MARGIN
"""A reference explains a gap in accept length only if it accepts more than the suspect, by more than the margin. The
study's choice may not: it is chosen by the objective, such as throughput."""


@dataclass(frozen=True, kw_only=True)
class IsolationEnds:
    """What is compared with what. `reference` is `chosen`, at tp 1 where both ends share a larger TP size: only beside
    a server that splits nothing does a fault of parallelism show that both ends have."""

    suspect: EngineConfig
    reference: EngineConfig
    chosen: EngineConfig
    chosen_as: str


def choose_ends(
    plan: SweepPlan,
    ranking: Ranking,
    records: Sequence[TrialRecord],
    *,
    suspect: str | None = None,
    reference: str | None = None,
) -> IsolationEnds:
    """The suspect is the given one, the spec's, or the draft as shipped; the reference is the given one, the study's
    choice, or, where that accepts no more than the suspect, the setting that accepts most.

    `suspect` and `reference` are a trial's id or a setting in YAML. InputError when one is neither, cannot run, or when
    nothing was measured that could be a reference.
    """
    bad = _suspect(plan, ranking, records, suspect)
    if reference is not None:
        good, how = _parse(reference, "--reference", records, plan.context), "given"
    else:
        good, how = _reference(ranking, bad)
    return IsolationEnds(
        suspect=bad, reference=_beside_parallelism(bad, good, plan.context), chosen=good, chosen_as=how
    )


def setting_of_config(config: EngineConfig) -> Setting:
    """The setting that asks for exactly this server."""
    if config.triple is None or config.layout is None:
        raise InputError("isolate: a server without speculation has no layout and no triple to compare")
    return Setting(
        layout=layout_label(config.layout),
        num_steps=config.triple.num_steps,
        eagle_topk=config.triple.eagle_topk,
        num_draft_tokens=config.triple.num_draft_tokens,
        tp_size=config.tp_size,
        flags=config.flags,
    )


def given_taps(text: str) -> TrainedOn:
    """What the user says of the training. InputError when that is no list of taps."""
    try:
        taps = parse_layout_label(text)
    except InputError:
        taps = "default"  # no taps either
    if isinstance(taps, str):
        raise InputError(f"--trained-on: {text!r} is not a list of taps such as 0,3,7")
    return TrainedOn(taps=taps, source="given")


def trained_on(text: str | None, records: Sequence[TrialRecord], workload_id: str) -> TrainedOn | None:
    """The taps the draft was trained on: as given, else the layout that accepts best where nothing but the layout
    differs. None without two layouts that share a triple, TP size, flags and load, or when no single one is best."""
    if text is not None:
        return given_taps(text)
    lengths: dict[tuple[object, ...], dict[Taps, list[float]]] = {}
    for record in records:
        config = record.effective
        for cell in record.cells if record.ok and config.layout is not None else ():
            if config.layout is not None and cell.workload_id == workload_id and cell.ranked and cell.accept_length:
                place = lengths.setdefault((config.triple, config.tp_size, config.flags, cell.load), {})
                place.setdefault(config.layout, []).append(cell.accept_length.value)
    places = [{layout: mean(values) for layout, values in place.items()} for place in lengths.values()]
    known = {layout for place in places if len(place) > 1 for layout in place}
    best = [layout for layout in known if not any(_accepts_more(other, layout, places) for other in known)]
    return TrainedOn(taps=best[0], source="inferred") if len(best) == 1 else None


def _accepts_more(one: Taps, other: Taps, places: Sequence[Mapping[Taps, float]]) -> bool:
    """Over the places where both were measured; False where there is none."""
    return sum(place[one] - place[other] for place in places if one in place and other in place) > 0


def _suspect(plan: SweepPlan, ranking: Ranking, records: Sequence[TrialRecord], text: str | None) -> EngineConfig:
    if text is not None:
        return _parse(text, "--suspect", records, plan.context)
    if plan.suspect is not None:
        return plan.suspect.effective
    row = ranking.suspect()
    if row is None:
        raise InputError("isolate: the spec has no `suspect` and no trial ran the draft as shipped; give --suspect")
    return row.setting.effective


def _reference(ranking: Ranking, suspect: EngineConfig) -> tuple[EngineConfig, str]:
    choice = ranking.choice
    if choice is None:
        raise InputError("isolate: no setting could be ranked, so there is no reference; give --reference")
    own = next((_length(row) for row in ranking.settings if row.setting.effective == suspect), 0.0)
    if _length(choice) > own * (1 + MORE):
        return choice.setting.effective, "the study's choice"

    def at_suspects_size(row: RankedSetting) -> tuple[float, bool]:
        return round(_length(row), 3), row.setting.effective.tp_size == suspect.tp_size

    best = max(ranking.settings, key=at_suspects_size)
    if _length(best) > own * (1 + MORE):
        return (
            best.setting.effective,
            "the setting that accepts most; the study's choice accepts no more than the suspect",
        )
    return choice.setting.effective, "the study's choice"


def _length(row: RankedSetting) -> float:
    return 0.0 if row.accept_length is None or row.status != "ranked" else row.accept_length.value


def _parse(text: str, option: str, records: Sequence[TrialRecord], context: RuleContext) -> EngineConfig:
    for record in records:
        if text in (record.trial_id, record.trial_id.rpartition("-a")[0]):
            return _speculative(record.effective, option)
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        content = None
    if not isinstance(content, dict):
        example = "{layout: [0, 3, 7], num_steps: 3, eagle_topk: 1, num_draft_tokens: 4, tp_size: 2}"
        raise InputError(f"{option}: {text!r} is neither a trial of this study nor a setting such as {example}")
    try:
        setting = SettingSpec.model_validate(content).to_setting()
    except ValidationError as error:
        path, message = explain(error.errors()[0], SettingSpec)
        raise InputError(f"{option}: {show_path(path)}: {message}") from None
    ruling = resolve_setting(setting, context)
    if isinstance(ruling, Illegal):
        raise InputError(f"{option}: cannot run: {ruling.message} ({ruling.rule})")
    return ruling.effective


def _speculative(config: EngineConfig, option: str) -> EngineConfig:
    if config.is_baseline:
        raise InputError(f"{option}: a baseline has no layout and no triple to compare")
    return config


def _beside_parallelism(suspect: EngineConfig, chosen: EngineConfig, context: RuleContext) -> EngineConfig:
    """`chosen` at tp 1 where that is legal and both ends share a larger TP size."""

    def parallel(config: EngineConfig) -> tuple[object, ...]:
        return (config.tp_size, *(flag for flag in config.flags if flag[0] in PARALLEL_FLAGS))

    if suspect.tp_size == 1 or parallel(suspect) != parallel(chosen):
        return chosen
    plain = tuple(flag for flag in chosen.flags if flag[0] not in PARALLEL_FLAGS)
    alone = replace(chosen, tp_size=1, flags=plain)
    return chosen if isinstance(resolve_setting(setting_of_config(alone), context), Illegal) else alone
