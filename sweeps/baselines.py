"""The trials that every sweep runs beside its search: baselines, and what the user has today. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from results.objective import Objective
from results.records import TrialRecord
from search_spaces.config import EngineConfig, Setting
from sweeps.ledger import SEARCH_ROLES
from sweeps.legal_space import LegalSpace
from sweeps.planning import SweepPlan
from sweeps.tasks import FixedTrial


def fixed_trials(plan: SweepPlan, legal: LegalSpace, *, repeats: int, expected_trials: int) -> tuple[FixedTrial, ...]:
    """Baselines by TP size, then the suspect when the space does not hold it as it was asked for.

    Each baseline is launched `repeats` times, spread evenly over the `expected_trials` of the search. The first come
    first: without them no later trial can be compared. The last come last: between them drift shows.
    """
    baselines = sorted((*plan.servers.baselines, *plan.extra_baselines), key=lambda config: config.tp_size)
    trials = [
        FixedTrial(
            base=f"baseline-tp{config.tp_size}" + (f"-{turn + 1}" if turn else ""),
            role="baseline",
            setting=None,
            config=config,
            due_after=round(expected_trials * turn / (repeats - 1)) if turn else 0,
        )
        for turn in range(repeats)
        for config in baselines
    ]
    suspect = plan.suspect_setting
    if suspect is not None and plan.suspect is not None and not legal.contains(suspect):
        trials += _repeated(suspect, plan.suspect.effective, plan.servers.repeats if plan.suspect_is_extra else 1)
    return tuple(trials)


def confirming_trials(records: Sequence[TrialRecord], objective: Objective, count: int) -> tuple[FixedTrial, ...]:
    """Fresh launches of the best setting of the search so far; none when nothing was measured.

    The best of many noisy numbers is biased upwards, so the winner's own number is not what is announced. The names
    carry the configuration: another winner after a resumed search is confirmed anew.
    """
    best: TrialRecord | None = None
    best_value = 0.0
    for record in records:
        value = objective.value(record) if record.ok and record.role in SEARCH_ROLES else None
        if not isinstance(value, float) or record.setting is None:
            continue
        ahead = value > best_value if objective.direction == "maximize" else value < best_value
        if best is None or ahead:
            best, best_value = record, value
    if best is None:
        return ()
    base = f"confirm-{best.effective.identity[:6]}"
    return tuple(
        FixedTrial(base=f"{base}-{i + 1}", role="confirm", setting=best.setting, config=best.effective)
        for i in range(count)
    )


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
