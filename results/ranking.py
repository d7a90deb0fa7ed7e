"""The settings of a study in order: values with intervals, speedups, ties, the best one and the one to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from results.drift import Drift, baseline_drift, correction
from results.launch_noise import launch_noise, repeated_launches
from results.measured_settings import (
    LaunchValue,
    MeasuredSetting,
    RowsOf,
    launch_values,
    loads_of,
    measured_settings,
    of_one_workload,
)
from results.noise import NoiseFloor
from results.objective import Objective
from results.paired_intervals import PairedIntervals
from results.ranked_settings import RankedSetting, compared, in_order, make_row
from results.records import TrialRecord
from results.request_table import CellKey
from results.speedups import LoadNumbers, load_numbers, outputs_by_load, throughput_at
from results.study_findings import study_findings
from results.switch_comparison import judge_switching


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """All settings, best first, the unranked and failed after them; baselines have a list of their own.

    `best` has the best value; `choice` is the cheapest setting that ties with it, and is what to run. Both None when no
    speculative setting could be ranked. `drift` is the objective's; `other_drifts` are significant ones of the output
    throughput at a load, for which that column is corrected, where it is not the objective. `findings` are sentences
    about the study as a whole.
    """

    objective: Objective
    load: CellKey | None
    settings: tuple[RankedSetting, ...]
    baselines: tuple[RankedSetting, ...]
    best: RankedSetting | None
    choice: RankedSetting | None
    noise: NoiseFloor
    drift: Drift | None
    other_drifts: tuple[tuple[CellKey, Drift], ...]
    findings: tuple[str, ...]

    @property
    def loads(self) -> tuple[LoadNumbers, ...]:
        """One entry for every load that any trial measured, the same in every row."""
        return next((row.loads for row in (*self.settings, *self.baselines)), ())

    @property
    def ties(self) -> tuple[RankedSetting, ...]:
        return self._standing("tie")

    @property
    def untold(self) -> tuple[RankedSetting, ...]:
        """Settings that cannot be told apart from the best with the prompts and launches there are."""
        return self._standing("cannot tell")

    def _standing(self, standing: str) -> tuple[RankedSetting, ...]:
        return tuple(one for one in self.settings if one.against_best and one.against_best.standing == standing)

    def suspect(self) -> RankedSetting | None:
        """The setting the user complains about: measured as such, else the draft as shipped, most like the choice."""
        suspects = [row for row in self.settings if "suspect" in row.setting.roles]
        shipped = [row for row in self.settings if "shipped" in row.setting.labels]
        if self.choice is not None:
            best = self.choice.setting.effective
            shipped.sort(
                key=lambda row: (
                    (row.setting.effective.triple, row.setting.effective.tp_size) != (best.triple, best.tp_size)
                )
            )
        return next(iter((*suspects, *shipped)), None)

    def row_of(self, trial_id: str) -> RankedSetting | None:
        """The row that a trial belongs to."""
        rows = (*self.settings, *self.baselines)
        return next((one for one in rows if trial_id in one.setting.trial_ids), None)


def rank(
    records: Sequence[TrialRecord],
    objective: Objective,
    *,
    rows_of: RowsOf | None = None,
    greedy: bool = True,
) -> Ranking:
    """Rank a study's records. Pure but for `rows_of`, which is asked for the rows of trials that are compared.

    With rows, intervals of comparisons are paired by prompt, and outputs are compared with the baseline's when `greedy`
    (temperature 0) says that they must be the same. Cells of another workload than the study's are not compared.
    """
    as_measured, records = records, of_one_workload(records, objective)
    groups = measured_settings(records)
    baselines = [group for group in groups if group.effective.is_baseline]
    drift = baseline_drift(baselines, objective)
    corrected = correction(drift)
    values = {group.effective.identity: launch_values(group, objective, corrected) for group in groups}
    intervals = PairedIntervals(rows_of, repeated_launches(groups, objective))
    noise = launch_noise(groups, objective, corrected, intervals)
    loads = loads_of(records)

    outputs = {
        group.effective.identity: outputs_by_load(group, baselines, rows_of) if rows_of and greedy else {}
        for group in groups
    }
    # the objective's noise and drift say nothing about throughput when it is another metric or load
    drifts = {load: baseline_drift(baselines, throughput_at(load)) for load in loads}
    noises = {
        load: launch_noise(groups, throughput_at(load), correction(trend), intervals) for load, trend in drifts.items()
    }

    def numbers_of(group: MeasuredSetting, load: CellKey) -> LoadNumbers:
        return load_numbers(
            group,
            load,
            baselines,
            noise=noises[load],
            corrected=correction(drifts[load]),
            intervals=intervals,
            outputs=outputs[group.effective.identity].get(load),
        )

    rows = [make_row(group, values[group.effective.identity], objective) for group in groups]
    rows = [replace(row, loads=tuple(numbers_of(row.setting, load) for load in loads)) for row in rows]
    rows = in_order(rows, objective)
    candidates = [row for row in rows if row.value is not None and not row.is_baseline]
    best = candidates[0] if candidates else None
    if best is not None:
        rows = [compared(row, best, values, objective, noise=noise, intervals=intervals) for row in rows]
        best = next(row for row in rows if row.setting is best.setting)
    at = _load_of(values)
    speculative = tuple(row for row in rows if not row.is_baseline)
    equals = [row for row in speculative if row.against_best and row.against_best.standing in ("best", "tie")]
    return Ranking(
        objective=objective,
        load=at,
        settings=speculative,
        baselines=tuple(row for row in rows if row.is_baseline),
        best=best,
        choice=min(equals, key=lambda row: row.setting.cost, default=None),
        noise=noise,
        drift=drift,
        other_drifts=tuple(
            (load, trend)
            for load, trend in drifts.items()
            if trend is not None and trend.significant and (objective.metric, load) != ("output_throughput", at)
        ),
        findings=study_findings(
            groups, outputs=outputs, switching=judge_switching(as_measured, rows_of) if rows_of is not None else None
        ),
    )


def _load_of(values: dict[str, tuple[LaunchValue, ...]]) -> CellKey | None:
    cells = [one.cell for launches in values.values() for one in launches]
    return cells[0].load if cells else None
