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
    Status,
    launch_values,
    loads_of,
    mean_estimate,
    measured_settings,
    of_one_workload,
)
from results.noise import Comparison, NoiseFloor, compare
from results.objective import METRIC_WORDS, MissingValue, Objective
from results.paired_intervals import PairedIntervals
from results.records import CONFIRMING, TrialRecord
from results.request_table import CellKey
from results.speedups import LoadNumbers, load_numbers, outputs_by_load, throughput_at
from results.study_findings import study_findings
from results.summary import CellSummary, Estimate
from results.switch_comparison import judge_switching


@dataclass(frozen=True, kw_only=True)
class RankedSetting:
    """One row of the table. `value` is the objective's, None with `reasons`; `against_best` None for the unranked.

    `cell` is the cell that the objective looks at, of the first launch that has one. `confirmed` is True when the value
    comes from launches made only to confirm it.
    """

    setting: MeasuredSetting
    status: Status
    value: Estimate | None
    launches: int
    confirmed: bool
    cell: CellSummary | None
    accept_length: Estimate | None
    loads: tuple[LoadNumbers, ...]
    against_best: Comparison | None
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_baseline(self) -> bool:
        return self.setting.effective.is_baseline

    @property
    def p1(self) -> float | None:
        return self.cell.p1 if self.cell is not None else None


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

    rows = [_row(group, values[group.effective.identity], objective) for group in groups]
    rows = [replace(row, loads=tuple(numbers_of(row.setting, load) for load in loads)) for row in rows]
    rows = _ordered(rows, objective)
    candidates = [row for row in rows if row.value is not None and not row.is_baseline]
    best = candidates[0] if candidates else None
    if best is not None:
        rows = [_compared(row, best, values, objective, noise=noise, intervals=intervals) for row in rows]
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


def _row(setting: MeasuredSetting, launches: Sequence[LaunchValue], objective: Objective) -> RankedSetting:
    measured = [cell for record in setting.measured if (cell := objective.cell(record)) is not None]
    # what is shown beside the value is of the same launches: not of one that was dismissed or only the first
    cells = [one.cell for one in launches] or measured
    cell = next(iter(cells), None)
    lengths = [one.accept_length for one in cells if one.accept_length is not None]
    status: Status = "ranked" if launches else "not ranked" if setting.measured else "failed"
    missing = [value.reason for r in setting.records if isinstance(value := objective.value(r), MissingValue)]
    return RankedSetting(
        setting=setting,
        status=status,
        value=mean_estimate([one.estimate for one in launches]),
        launches=len(setting.measured),
        confirmed=any(one.record.role in CONFIRMING for one in launches),
        cell=cell,
        accept_length=mean_estimate(lengths),
        loads=(),
        against_best=None,
        reasons=() if launches else tuple(dict.fromkeys(missing)),
        warnings=tuple(
            dict.fromkeys((*_no_interval(launches, objective), *(w for one in cells for w in one.warnings)))
        ),
    )


def _no_interval(launches: Sequence[LaunchValue], objective: Objective) -> list[str]:
    words = METRIC_WORDS[objective.metric]
    return [f"{words} of {one.cell.requests} requests has no interval" for one in launches if not one.estimate.count]


def _ordered(rows: Sequence[RankedSetting], objective: Objective) -> list[RankedSetting]:
    sign = -1 if objective.direction == "maximize" else 1
    order = {"ranked": 0, "not ranked": 1, "failed": 2}
    return sorted(rows, key=lambda r: (order[r.status], sign * r.value.value if r.value else 0.0, r.setting.cost))


def _compared(
    row: RankedSetting,
    best: RankedSetting,
    values: dict[str, tuple[LaunchValue, ...]],
    objective: Objective,
    *,
    noise: NoiseFloor,
    intervals: PairedIntervals,
) -> RankedSetting:
    if row.value is None or best.value is None:
        return row
    if row.setting is best.setting:
        return replace(row, against_best=Comparison(standing="best", behind=0.0, half_width=0.0))
    ours, theirs = values[row.setting.effective.identity], values[best.setting.effective.identity]
    load = theirs[0].cell.load
    prompts = intervals.log_half_width(objective.metric, load, (_ids(theirs), best.value), (_ids(ours), row.value))
    comparison = compare(
        best.value.value,
        row.value.value,
        prompt_half_width=prompts,
        launch_half_width=noise.half_width(len(ours), len(theirs)),
        maximize=objective.direction == "maximize",
    )
    return replace(row, against_best=comparison)


def _ids(launches: Sequence[LaunchValue]) -> list[str]:
    return [one.record.trial_id for one in launches]
