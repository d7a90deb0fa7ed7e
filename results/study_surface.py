"""The surface of a study: exact where it has traces, estimated where it only measured a chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from results.acceptance import counter_problem, pooled_histogram
from results.records import TrialRecord
from results.store import TRACES_FOLDER, StudyFolder
from results.surface import SurfacePoint, surfaces_of, survival_points
from results.traced_points import once_each
from results.traces import find_traces
from search_spaces.config import Taps, Triple

SURFACE_FILE = "surface.json"


def traces_path(study: StudyFolder) -> Path:
    """Where a study's traces are."""
    return study.path / TRACES_FOLDER


def study_surface(study: StudyFolder, draft_tokens: Iterable[int] | None = None) -> tuple[SurfacePoint, ...]:
    """All points that the study's traces and records give. `draft_tokens` limits the trees to these sizes.

    A setting is there once: of several traces that cover it, the one of the most prompts counts, then the deepest. A
    traced chain needs no estimate; else the deepest measured chain of a layout and TP size gives one. InputError for a
    damaged trace or record.
    """
    deepest_first = sorted(find_traces(traces_path(study)), key=lambda trace: -trace.facts.num_steps)
    # layout by layout as `specsweep surface` shows them
    exact = sorted(once_each(surfaces_of(deepest_first, draft_tokens)), key=_place)
    traced = {(point.layout, point.tp_size) for point in exact if point.triple.eagle_topk == 1}
    estimates: list[SurfacePoint] = []
    for (layout, tp_size), record in sorted(_deepest_chains(study.records()).items()):
        if (layout, tp_size) not in traced and record.effective.triple is not None:
            histograms = _histograms(study, record, record.effective.triple)
            estimates += survival_points(layout, tp_size, record.effective.triple.num_steps, histograms)
    return (*exact, *estimates)


def _place(point: SurfacePoint) -> tuple[Taps, int, str, int, Triple]:
    return point.layout, point.tp_size, str(point.flags), point.triple.eagle_topk, point.triple


def _deepest_chains(records: Sequence[TrialRecord]) -> dict[tuple[Taps, int], TrialRecord]:
    found: dict[tuple[Taps, int], TrialRecord] = {}
    for record in records:
        config = record.effective
        if not record.ok or config.triple is None or config.layout is None:
            continue
        if not any(cell.ranked for cell in record.cells):
            continue
        if config.triple.eagle_topk != 1 or config.flags:
            continue
        key = (config.layout, config.tp_size)
        before = found[key].effective.triple if key in found else None
        if before is None or before.num_steps < config.triple.num_steps:
            found[key] = record
    return found


def _histograms(study: StudyFolder, record: TrialRecord, triple: Triple) -> dict[str, tuple[int, ...]]:
    """Per prompt, over the cells of a trial that are ranked, of the requests whose counters can be used."""
    tables = study.rows(record.trial_id)
    histograms: dict[str, tuple[int, ...]] = {}
    for row in (row for cell in record.cells if cell.ranked for row in tables.get(cell.load, ())):
        if row.error is None and row.histogram is not None and counter_problem(row, triple) is None:
            before = histograms.get(row.prompt_id, ())
            histograms[row.prompt_id] = pooled_histogram([before, row.histogram])
    return histograms
