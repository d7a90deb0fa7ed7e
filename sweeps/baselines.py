"""The trials that every sweep runs beside its search: baselines, and what the user has today. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from results.measured_settings import RowsOf
from results.objective import Objective
from results.ranking import rank
from results.records import TrialRecord
from search_spaces.config import EngineConfig, Setting
from sweeps.legal_space import Candidate, LegalSpace
from sweeps.planning import SweepPlan
from sweeps.switching import has_switches, smallest_tp_size
from sweeps.tasks import FixedTrial

MAX_CONFIRMED = 3
"""How many settings are launched afresh at most because one after the other came out in front."""


def fixed_trials(
    plan: SweepPlan,
    legal: LegalSpace,
    records: Sequence[TrialRecord],
    *,
    repeats: int,
    expected_trials: int,
    both: Setting | None = None,
) -> tuple[FixedTrial, ...]:
    """Baselines by TP size, then the fresh launch of what is measured `both` ways, then the suspect when the space does
    not hold it as it was asked for.

    Each baseline is launched `repeats` times, spread evenly over the `expected_trials` of the search. The first come
    first: without them no later trial can be compared. The last come last: between them drift shows. None comes again
    before a trial of the search was begun. Where servers are switched (`both`), a TP size's first baseline waits for
    the first trial of that size: it would end the server that the trials of another size go on with. Names are as in
    the study's `records`.
    """
    baselines = sorted((*plan.servers.baselines, *plan.extra_baselines), key=lambda config: config.tp_size)
    trials = [
        FixedTrial(
            base=f"baseline-tp{config.tp_size}" + (f"-{turn + 1}" if turn else ""),
            role="baseline",
            setting=None,
            config=config,
            due_after=max(1, round(expected_trials * turn / (repeats - 1))) if turn else 0,
            before_its_tp=not turn and both is not None and config.tp_size != baselines[0].tp_size,
        )
        for turn in range(repeats)
        for config in baselines
    ]
    if both is not None:
        trials.append(check_trial(legal, both))
    suspect = plan.suspect_setting
    if suspect is not None and plan.suspect is not None and not legal.contains(suspect):
        count = plan.servers.repeats if plan.suspect_is_extra else 1
        trials += _repeated(suspect, plan.suspect.effective, count, records)
    return tuple(trials)


def both_ways(legal: LegalSpace, suspect: Setting | None) -> Setting | None:
    """The setting that a study measures both by a switch and on a fresh launch, before anything rests on switching.

    Of the smallest TP size; what the user has today where that has it, so that the search measures it anyway. None when
    there is nothing to switch between, and the winner's confirmation is comparison enough.
    """
    if not has_switches(legal.configs):
        return None
    smallest = smallest_tp_size(legal.configs)
    first = [setting for _, setting in first_settings(legal, suspect)]
    for setting in (*first, *legal.space.settings()):
        candidate = legal.candidate(setting)
        if isinstance(candidate, Candidate) and candidate.config.tp_size == smallest:
            return setting
    return None


def check_trial(legal: LegalSpace, setting: Setting) -> FixedTrial:
    """The fresh launch of a setting that is measured both ways."""
    candidate = legal.candidate(setting)
    assert isinstance(candidate, Candidate)
    base = f"check-{candidate.config.identity[:6]}"
    return FixedTrial(base=base, role="check", setting=setting, config=candidate.config)


def confirming_trials(
    records: Sequence[TrialRecord], objective: Objective, count: int, rows_of: RowsOf | None = None
) -> tuple[FixedTrial, ...]:
    """`count` fresh launches of what leads the study now and of what would be announced, unless they were made before.

    The best of many noisy numbers is biased upwards, so the winner's own number is not what is announced. Its
    confirmation may put another setting in front, which is then confirmed too: ask again after every launch. After
    `MAX_CONFIRMED` settings the study has to live with a leader that cannot be told from the others. The names carry
    the configuration: another winner after a resumed search is confirmed anew.
    """
    ranking = rank(records, objective, rows_of=rows_of)
    leaders = [row for row in (ranking.best, ranking.choice) if row is not None]
    launched = {record.effective.identity for record in records if record.role == "confirm"}
    trials: dict[str, FixedTrial] = {}
    for row in leaders:
        config = row.setting.effective
        setting = next((record.setting for record in row.setting.records if record.setting is not None), None)
        launched.add(config.identity)
        if setting is None or len(launched) > MAX_CONFIRMED:
            continue
        # a setting that is measured both ways has a fresh launch that was not chosen for its value
        for turn in range(count - sum(record.role == "check" for record in row.setting.measured)):
            base = f"confirm-{config.identity[:6]}-{turn + 1}"
            trials[base] = FixedTrial(base=base, role="confirm", setting=setting, config=config)
    return tuple(trials.values())


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


def _repeated(setting: Setting, config: EngineConfig, count: int, records: Sequence[TrialRecord]) -> list[FixedTrial]:
    # the name carries the configuration: another suspect in a resumed study is measured as such
    bases = [f"suspect-{config.identity[:6]}-{turn + 1}" for turn in range(count)]
    # names of studies that were begun when it did not
    begun = {record.trial_id.rpartition("-a")[0] for record in records if record.effective == config}
    bases = [plain if (plain := f"suspect-{turn + 1}") in begun else base for turn, base in enumerate(bases)]
    return [FixedTrial(base=base, role="suspect", setting=setting, config=config) for base in bases]
