"""The trials that every sweep runs beside its search: baselines for each TP size, and a suspect outside the space. Pure."""

from __future__ import annotations

from sweeps.planning import SweepPlan
from sweeps.tasks import FixedTrial


def fixed_trials(plan: SweepPlan) -> tuple[FixedTrial, ...]:
    """Baselines by TP size, as often as the plan counts them, then the suspect when the space does not hold it.

    Baselines come first: without them no later trial can be compared.
    """
    baselines = sorted((*plan.servers.baselines, *plan.extra_baselines), key=lambda config: config.tp_size)
    trials = [
        FixedTrial(base=f"baseline-tp{config.tp_size}", role="baseline", setting=None, config=config)
        for config in baselines
    ]
    if plan.suspect is not None and plan.suspect_is_extra:
        trials += [
            FixedTrial(
                base=f"suspect-{i + 1}", role="suspect", setting=plan.suspect_setting, config=plan.suspect.effective
            )
            for i in range(plan.servers.repeats)
        ]
    return tuple(trials)
