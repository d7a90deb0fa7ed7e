"""Intervals of simulated cells hold the truth as often as they say and are no wider than needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.coverage import measure_coverage
from benchmarks.machine import machine
from benchmarks.result_file import PACKAGES, write_result

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "coverage.json"


def test_a_few_simulated_cells_hold_the_truth() -> None:
    result = measure_coverage(runs=20, truth_cells=120)
    for name, found in result["statistics"].items():
        # of 20 runs at 95 %, 16 or fewer hold the truth once in 60 times
        assert found["covered"] >= 17 / 20, (name, found)
        assert found["mean"] == pytest.approx(found["truth"], rel=0.03)
        if found["half_width_over_exact"] is not None:
            assert 0.75 <= found["half_width_over_exact"] <= 1.5, (name, found)
    sent = result["share_of_prompts_sent"]
    assert sent["stopped at 0.12"] < 0.4 < sent["stopped at 0.08"] < 0.7


@pytest.mark.evidence
@pytest.mark.timeout(1800)
def test_a_thousand_simulated_cells_hold_the_truth() -> None:
    before = machine(*PACKAGES)
    result = measure_coverage(runs=1000)
    command = "python -m pytest -m evidence tests/results/test_coverage.py"
    write_result(RESULTS, command=command, content=result, before=before)
    for name, found in result["statistics"].items():
        assert found["covered"] >= 0.93, (name, found)
        assert (found["half_width_over_exact"] or 1.0) <= 1.5, (name, found)
