"""One row of the table: a setting with its value, where it stands beside the best one, and why it may not be ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from results.measured_settings import LaunchValue, MeasuredSetting, Status, mean_estimate
from results.noise import Comparison, NoiseFloor, compare
from results.objective import METRIC_WORDS, MissingValue, Objective
from results.paired_intervals import PairedIntervals
from results.records import CONFIRMING
from results.speedups import LoadNumbers
from results.summary import CellSummary, Estimate


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


def make_row(setting: MeasuredSetting, launches: Sequence[LaunchValue], objective: Objective) -> RankedSetting:
    """The row of a setting by itself: without numbers at loads and not yet compared."""
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


def in_order(rows: Sequence[RankedSetting], objective: Objective) -> list[RankedSetting]:
    """Best value first and the cheaper of two equal ones; then what is not ranked, then what failed."""
    sign = -1 if objective.direction == "maximize" else 1
    order = {"ranked": 0, "not ranked": 1, "failed": 2}
    return sorted(rows, key=lambda r: (order[r.status], sign * r.value.value if r.value else 0.0, r.setting.cost))


def compared(
    row: RankedSetting,
    best: RankedSetting,
    values: Mapping[str, tuple[LaunchValue, ...]],
    objective: Objective,
    *,
    noise: NoiseFloor,
    intervals: PairedIntervals,
) -> RankedSetting:
    """The row with its standing beside the best one. `values` are those of both, by the identity of the setting."""
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
