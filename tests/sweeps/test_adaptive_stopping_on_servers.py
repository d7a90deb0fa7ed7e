"""Real servers: cells that stop by themselves need at most half of the requests of a sweep of fixed size.

A sweep of fixed size does not know beforehand how many prompts a setting needs, so every one of its cells has as many
as its widest ranked cell needs for the half-width that is wanted. Here it goes first: the half-width that its widest
ranked cell reaches with all prompts is then asked of a sweep that may stop, over the same space, prompts and load.
Baselines, confirmations and checks count in both, however many there were.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from demo_sweeps import ROOT, run_sweep

from benchmarks.result_file import write_result
from results.records import TrialRecord
from results.store import StudyFolder
from results.summary import CellSummary

RESULTS = ROOT / "benchmarks" / "results" / "adaptive_stopping.json"
PROMPTS, TOKENS, CONCURRENCY = 120, 48, 4

SECTIONS = f"""\
space:
  layout: [[0, 3, 7], default, [5, 6, 7]]
  num_steps: [1, 5]
  eagle_topk: [1]
  num_draft_tokens: [8]
workload:
  prompts: {{prompts}}
  count: {PROMPTS}
  max_new_tokens: {TOKENS}
  concurrency: [{CONCURRENCY}]
  ignore_eos: true
  half_width: HALF_WIDTH
"""


@pytest.mark.evidence
@pytest.mark.server
@pytest.mark.timeout(1500)
def test_at_most_half_of_the_requests_and_the_same_winner(tmp_path: Path) -> None:
    fixed = Sweep(tmp_path, "fixed", None)
    half_width = max(width_of(cell) for cell in fixed.ranked)
    adaptive = Sweep(tmp_path, "adaptive", half_width)
    share = adaptive.requests / fixed.requests
    result = {
        "load": {"prompts": PROMPTS, "max_new_tokens": TOKENS, "concurrency": CONCURRENCY},
        "half_width": round(half_width, 4),
        "share_of_requests": round(share, 3),
        "same_winner": adaptive.winner == fixed.winner,
        "fixed": fixed.to_json(),
        "adaptive": adaptive.to_json(),
    }
    write_result(
        RESULTS,
        command="python -m pytest -m evidence tests/sweeps/test_adaptive_stopping_on_servers.py",
        content=result,
    )
    assert adaptive.winner == fixed.winner
    assert fixed.requests == PROMPTS * len(fixed.cells)
    assert share <= 0.5
    for record, cell in adaptive.cells:
        if "dominated" not in (cell.stopped or ""):
            # decided on the requests finished at a look, reported with those still on their way
            assert width_of(cell) <= 1.1 * half_width, record.trial_id


class Sweep:
    """One sweep that was run to its end."""

    def __init__(self, folder: Path, study: str, half_width: float | None) -> None:
        sections = SECTIONS.replace("HALF_WIDTH", "null" if half_width is None else f"{half_width:.4f}")
        self.report = run_sweep(folder, study, sections, prompt_count=PROMPTS + 8, switching="auto", timeout_s=900)
        records = StudyFolder(folder / "home" / study).records()
        assert all(record.ok for record in records)
        self.cells = [(record, cell) for record in records for cell in record.cells]
        self.requests = sum(cell.requests for _, cell in self.cells)

    @property
    def winner(self) -> tuple[str, int]:
        row = next(row for row in self.report["settings"] if row["id"] == self.report["choice"])
        return row["layout"], row["num_steps"]

    @property
    def ranked(self) -> list[CellSummary]:
        return [cell for record, cell in self.cells if cell.ranked and not record.effective.is_baseline]

    def to_json(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "measuring_s": round(sum(cell.duration_s for _, cell in self.cells), 1),
            "winner": self.winner,
            "cells": [cell_row(record, cell) for record, cell in self.cells],
        }


def width_of(cell: CellSummary) -> float:
    """The wider of the relative half-widths that are wanted narrow: of throughput and accept length."""
    assert cell.output_throughput is not None
    widths = [cell.output_throughput.relative_half_width]
    if cell.accept_length is not None:
        widths.append(cell.accept_length.relative_half_width)
    return max(widths)


def cell_row(record: TrialRecord, cell: CellSummary) -> dict[str, Any]:
    triple = record.effective.triple
    assert cell.output_throughput is not None
    return {
        "trial": record.trial_id,
        "layout": record.effective.layout,
        "triple": None if triple is None else str(triple),
        "requests": cell.requests,
        "output_throughput": round(cell.output_throughput.value, 1),
        "accept_length": None if cell.accept_length is None else round(cell.accept_length.value, 3),
        "half_width": round(width_of(cell), 4),
        "stopped": cell.stopped,
    }
