"""What a search by surface did and how far it could be trusted: kept in the study's folder, shown in the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from results.predicted_rounds import rounds_sentences
from results.prediction import Comparison
from results.store import StudyFolder
from search_spaces.errors import InputError

NOTES_FILE = "search.json"
NOTES_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class SearchNotes:
    """One study's search. `traces` are rows of `FinishedTrace`; `fallback` says why the surface is not followed at all.

    `weight_loads` counts servers started for traces in all sessions, `trace_s` the time they took
    (`results.trace_launches`). `comparisons` has one row for every measurement that was predicted before it was made.
    `findings` are the sampler's own sentences. `gain_left` is set when the search ended because no setting was expected
    to gain more than it. `rounds` has the verify steps of every measured load of a traced setting beside the predicted
    ones (`results.predicted_rounds`).
    """

    traces: tuple[dict[str, Any], ...] = ()
    weight_loads: int = 0
    trace_s: float = 0.0
    fallback: str | None = None
    comparisons: tuple[dict[str, Any], ...] = ()
    rounds: tuple[dict[str, Any], ...] = ()
    findings: tuple[str, ...] = ()
    trusted: bool = True
    gain_left: float | None = None

    def to_json(self) -> dict[str, Any]:
        content = dict(vars(self))
        return {"schema": NOTES_SCHEMA, **content}

    @property
    def sentences(self) -> tuple[str, ...]:
        """Findings for the report, the most serious first."""
        told = [f"search by surface: {finding}" for finding in self.findings]
        if self.fallback is not None:
            told.insert(0, f"search by surface: fell back to TPE: {self.fallback}")
        told += [
            f"trace of layout {row['layout']} at topk {row['eagle_topk']} failed: {row['failure']['kind']}: "
            f"{row['failure']['message']}"
            for row in self.traces
            if row.get("failure")
        ]
        told += [
            f"trace of layout {row['layout']} at topk {row['eagle_topk']}: {text}"
            for row in self.traces
            for text in row.get("problems", ())
        ]
        if self.comparisons:
            told.append(_accuracy(self.comparisons))
        told += rounds_sentences(self.rounds)
        if self.gain_left is not None:
            told.append(
                f"the search ended early: no setting that is left was expected to gain more than {self.gain_left:.2%} "
                "(search.stop_at_gain)"
            )
        return tuple(told)


def _accuracy(rows: Sequence[dict[str, Any]]) -> str:
    held = sum(row["held"] for row in rows)
    typical = median(abs(row["relative_error"]) for row in rows)
    worst = max(rows, key=lambda row: abs(row["relative_error"]))
    return (
        f"search by surface: {held} of {len(rows)} measurements lay in the 95 % interval predicted for them; off by "
        f"{typical:.1%} in the median, {worst['relative_error']:+.1%} at most (layout {worst['layout']} "
        f"({worst['num_steps']},{worst['eagle_topk']},{worst['num_draft_tokens']}) tp {worst['tp_size']})"
    )


def comparison_row(comparison: Comparison) -> dict[str, Any]:
    """A row of `comparisons`."""
    setting, forecast = comparison.setting, comparison.forecast
    return {
        "number": comparison.number,
        "layout": setting.layout,
        "num_steps": setting.triple.num_steps,
        "eagle_topk": setting.triple.eagle_topk,
        "num_draft_tokens": setting.triple.num_draft_tokens,
        "tp_size": setting.tp_size,
        "predicted": forecast.value,
        "low": forecast.low,
        "high": forecast.high,
        "measured": comparison.measured,
        "relative_error": comparison.relative_error,
        "held": forecast.holds(comparison.measured),
    }


def write_notes(folder: StudyFolder, notes: SearchNotes) -> None:
    """Replace the study's notes, atomically."""
    folder.write_file(folder.path / NOTES_FILE, json.dumps(notes.to_json(), indent=1, allow_nan=False) + "\n")


def read_notes(folder: StudyFolder) -> SearchNotes | None:
    """None when no search by surface has run; InputError for a damaged file."""
    path = folder.path / NOTES_FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict) or content.pop("schema", None) != NOTES_SCHEMA:
        raise InputError(f"{path}: not the notes of a search of schema {NOTES_SCHEMA}")
    values: dict[str, Any] = {key: tuple(it) if isinstance(it, list) else it for key, it in content.items()}
    try:
        return SearchNotes(**values)
    except TypeError as error:
        raise InputError(f"{path}: damaged: {error}") from None
