"""Records grouped by what the servers really ran: all launches of one effective configuration are one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from results.failures import Failure
from results.objective import Objective
from results.observations import RequestRow
from results.records import CONFIRMING, TrialRecord
from results.request_table import CellKey
from results.summary import CellSummary, Estimate, scaled
from search_spaces.config import EngineConfig

Status = Literal["ranked", "not ranked", "failed"]

RowsOf = Callable[[str], Mapping[CellKey, Sequence[RequestRow]]]
"""The request rows of a trial by cell, such as `StudyFolder.rows`."""


@dataclass(frozen=True, kw_only=True)
class MeasuredSetting:
    """One effective configuration with all of its attempts, in the order of the records.

    `labels` are the layouts under which it was asked for (`shipped`, `default`, `0,3,7`).
    """

    effective: EngineConfig
    records: tuple[TrialRecord, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.setting.layout for record in self.records if record.setting is not None))

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(record.role for record in self.records)

    @property
    def trial_ids(self) -> tuple[str, ...]:
        return tuple(record.trial_id for record in self.records)

    @property
    def measured(self) -> tuple[TrialRecord, ...]:
        return tuple(record for record in self.records if record.ok and record.cells)

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(record.failure for record in self.records if record.failure is not None)

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """Orders settings from cheap to dear: GPUs first, then tokens to verify, draft steps, width."""
        triple = self.effective.triple
        if triple is None:
            return (self.effective.tp_size, 0, 0, 0)
        return (self.effective.tp_size, triple.num_draft_tokens, triple.num_steps, triple.eagle_topk)


def measured_settings(records: Sequence[TrialRecord]) -> tuple[MeasuredSetting, ...]:
    """Group records by effective identity, in the order of first appearance."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(record.effective.identity, []).append(record)
    return tuple(MeasuredSetting(effective=group[0].effective, records=tuple(group)) for group in groups.values())


def of_one_workload(records: Sequence[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """Mark cells of another workload than the study's as not ranked: their numbers answer another question.

    The study's is that of most of the objective's cells. Corners of an isolation have no say: they are greedy, and may
    be sent other prompts, however many they are. Where there is nothing else, they have one.
    """
    measured = [(record, cell) for record in records if (cell := objective.cell(record)) is not None]
    ids = [cell.workload_id for record, cell in measured if record.role != "corner"]
    votes = Counter(ids or [cell.workload_id for _, cell in measured])
    if not votes:
        return list(records)
    usual = votes.most_common(1)[0][0]
    reason = f"measured on another workload than {usual}"
    return [
        replace(
            record,
            cells=tuple(
                cell if cell.workload_id == usual else replace(cell, not_ranked=(*cell.not_ranked, reason))
                for cell in record.cells
            ),
        )
        for record in records
    ]


@dataclass(frozen=True, kw_only=True)
class LaunchValue:
    """One trial's value of the objective, corrected for drift (by `factor`) if there was any."""

    record: TrialRecord
    cell: CellSummary
    estimate: Estimate
    factor: float = 1.0

    @property
    def at_unix_s(self) -> float:
        """When it was measured."""
        return self.cell.started_at_unix_s or self.record.started_at_unix_s


def all_launch_values(
    setting: MeasuredSetting,
    objective: Objective,
    corrected: Callable[[float, float], float] = lambda value, _: value,
) -> tuple[LaunchValue, ...]:
    """The values of a setting's ranked cells, one a trial, in the order of the records."""
    values = []
    for record in setting.measured:
        cell = objective.cell(record)
        estimate = objective.estimate(cell) if cell is not None and cell.ranked else None
        if cell is not None and estimate is not None and estimate.value > 0:
            one = LaunchValue(record=record, cell=cell, estimate=estimate)
            factor = corrected(1.0, one.at_unix_s)
            values.append(replace(one, estimate=scaled(estimate, factor), factor=factor))
    return tuple(values)


def launch_values(
    setting: MeasuredSetting,
    objective: Objective,
    corrected: Callable[[float, float], float] = lambda value, _: value,
) -> tuple[LaunchValue, ...]:
    """The values that speak for a setting: of all launches, or of fresh confirming launches alone when there are any.

    The first value of a winner is biased upwards, because it won; its confirmation is not.
    """
    values = all_launch_values(setting, objective, corrected)
    confirming = tuple(value for value in values if value.record.role in CONFIRMING)
    return confirming or values


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate | None:
    """The mean of launches. Its interval is theirs, averaged: launching again does not draw other prompts."""
    if not estimates:
        return None
    number = len(estimates)
    return Estimate(
        value=sum(e.value for e in estimates) / number,
        low=sum(e.low for e in estimates) / number,
        high=sum(e.high for e in estimates) / number,
        count=max(e.count for e in estimates),
    )


def loads_of(records: Sequence[TrialRecord]) -> tuple[CellKey, ...]:
    """All loads that were measured: closed loops by concurrency, then open loops by rate."""
    keys = {cell.load for cell in chain.from_iterable(r.cells for r in records)}
    return tuple(sorted(keys, key=lambda key: (key[1] is not None, key[1] or 0.0, key[0])))


def cells_at(setting: MeasuredSetting, load: CellKey) -> tuple[CellSummary, ...]:
    """A setting's ranked cells at one load; those of confirming launches alone when there are any.

    What `launch_values` says of the objective holds of every other number that stands beside it.
    """
    found = [
        (record, cell) for record in setting.measured for cell in record.cells if cell.load == load and cell.ranked
    ]
    confirming = [cell for record, cell in found if record.role in CONFIRMING]
    return tuple(confirming or [cell for _, cell in found])
