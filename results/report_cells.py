"""What a report says cell by cell: why one is not ranked, what is to be known about one that is, why it ended early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from results.cell_row import cell_json
from results.loads import load_words
from results.ranked_settings import RankedSetting
from results.ranking import Ranking
from results.records import TrialRecord
from results.summary import CellSummary
from results.table import setting_words

_NAMED = 3
"""So many settings with the same warning are named, the others are counted."""


def row_name(row: RankedSetting) -> str:
    """The setting and the trials behind it."""
    return f"{setting_words(row)} ({', '.join(row.setting.trial_ids[:_NAMED])})"


def objections(ranking: Ranking) -> tuple[str, ...]:
    """Every trial that failed and every cell that is not ranked, with the reason; cells of one reason share a line."""
    said: dict[tuple[str, str], list[str]] = {}
    for row, record in _records(ranking):
        name = f"{setting_words(row)} ({record.trial_id})"
        if record.failure is not None:
            failure = record.failure
            said.setdefault((name, f"failed with {failure.kind} in phase {failure.phase}: {failure.message}"), [])
        for cell in record.cells:
            for reason in cell.not_ranked:
                said.setdefault((name, reason), []).append(load_words(cell.load))
    lines = [
        f"{name}{' at ' + ' and '.join(loads) if loads else ''}: {reason}" for (name, reason), loads in said.items()
    ]
    return (*lines, *_without_a_value(ranking))


def _without_a_value(ranking: Ranking) -> Iterator[str]:
    """Settings that were measured without any objection, but not for what the study asks."""
    for row in (*ranking.settings, *ranking.baselines):
        if row.status == "not ranked" and all(cell.ranked for record in row.setting.measured for cell in record.cells):
            yield from (f"{row_name(row)}: {reason}" for reason in row.reasons)


def warnings(ranking: Ranking) -> tuple[str, ...]:
    """Warnings about cells that are ranked; one that all settings share is said once."""
    rows = [row for row in (*ranking.settings, *ranking.baselines) if row.status == "ranked"]
    said: dict[str, dict[str, None]] = {}
    for row in rows:
        unfair = [reason for load in row.loads for reason in load.unfair]
        of_cells = [warning for cell in cells_of(row) if cell.ranked for warning in cell.warnings]
        for warning in (*row.warnings, *of_cells, *unfair):
            said.setdefault(warning, {})[row_name(row)] = None
    return tuple(f"{_names(list(of), len(rows))}: {warning}" for warning, of in said.items())


def _names(names: list[str], rows: int) -> str:
    if len(names) == rows > 1:
        return "every setting"
    return "; ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def stopped(ranking: Ranking) -> tuple[str, ...]:
    """Cells that ended before their last prompt, and why; cells of one reason share a line."""
    said: dict[tuple[str, str], list[str]] = {}
    for row, record in _records(ranking):
        for cell in record.cells:
            if cell.stopped is not None:
                name = f"{setting_words(row)} ({record.trial_id})"
                said.setdefault((name, cell.stopped), []).append(load_words(cell.load))
    return tuple(f"{name} at {' and '.join(loads)}: {reason}" for (name, reason), loads in said.items())


def cells_of(row: RankedSetting) -> Iterator[CellSummary]:
    """All cells of all launches of a setting."""
    return (cell for record in row.setting.measured for cell in record.cells)


def cells_json(row: RankedSetting) -> list[dict[str, Any]]:
    """Each cell with whether it is ranked and all of its numbers, as plain JSON values."""
    return [
        {
            "trial": record.trial_id,
            "load": cell.load_label,
            "workload": cell.workload_id,
            "ranked": cell.ranked,
            "reasons": list(cell.not_ranked),
            **_numbers(cell, record),
        }
        for record in row.setting.records
        for cell in record.cells
    ]


def _numbers(cell: CellSummary, record: TrialRecord) -> dict[str, Any]:
    numbers = cell_json(cell, record.effective.triple)
    return {name: value for name, value in numbers.items() if name not in ("comparable", "objections")}


def _records(ranking: Ranking) -> Iterable[tuple[RankedSetting, TrialRecord]]:
    rows = (*ranking.settings, *ranking.baselines)
    return ((row, record) for row in rows for record in row.setting.records)
