"""The trials that every sweep runs beside its search: baselines, and what the user has today. Pure."""

from __future__ import annotations

from search_spaces.config import EngineConfig, Setting
from sweeps.legal_space import LegalSpace
from sweeps.planning import SweepPlan
from sweeps.tasks import FixedTrial


def fixed_trials(plan: SweepPlan, legal: LegalSpace) -> tuple[FixedTrial, ...]:
    """Baselines by TP size, then the suspect when the space does not hold it as it was asked for.

    Baselines come first: without them no later trial can be compared.
    """
    baselines = sorted((*plan.servers.baselines, *plan.extra_baselines), key=lambda config: config.tp_size)
    trials = [
        FixedTrial(base=f"baseline-tp{config.tp_size}", role="baseline", setting=None, config=config)
        for config in baselines
    ]
    suspect = plan.suspect_setting
    if suspect is not None and plan.suspect is not None and not legal.contains(suspect):
        trials += _repeated(suspect, plan.suspect.effective, plan.servers.repeats if plan.suspect_is_extra else 1)
    return tuple(trials)


def first_settings(legal: LegalSpace, suspect: Setting | None) -> tuple[tuple[str, Setting], ...]:
    """What the search is to try first, by label: the suspect if the space holds it, and the draft as it is shipped.

    Whatever the budget, the table then shows what the user has today.
    """
    first: list[tuple[str, Setting]] = []
    if suspect is not None and legal.contains(suspect):
        first.append(("suspect", suspect))
    if suspect is None:
        for label in ("shipped", "default"):
            setting = legal.first_with_layout(label)
            if setting is not None:
                first.append((label, setting))
                break
    return tuple(first)


def _repeated(setting: Setting, config: EngineConfig, count: int) -> list[FixedTrial]:
    return [FixedTrial(base=f"suspect-{i + 1}", role="suspect", setting=setting, config=config) for i in range(count)]
