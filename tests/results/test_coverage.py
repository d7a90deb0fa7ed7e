"""Intervals of simulated cells hold the truth as often as they say and are no wider than needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.coverage import measure_coverage
from benchmarks.result_file import write_result

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "coverage.json"


def test_a_few_simulated_cells_hold_the_truth() -> None:
    result = measure_coverage(runs=20, truth_cells=120)
    for name, found in result["statistics"].items():
        # of 20 runs at 95 %, 16 or fewer hold the truth once in 60 times
        assert found["covered"] >= 17 / 20, (name, found)
        assert found["mean"] == pytest.approx(found["truth"], rel=0.03)
        if found["half_width_over_exact"] is not None:
            assert 0.75 <= found["half_width_over_exact"] <= 1.5, (name, found)
    assert result["share_of_prompts_sent_when_stopping"] < 0.7


@pytest.mark.evidence
def test_three_hundred_simulated_cells_hold_the_truth() -> None:
    result = measure_coverage(runs=300)
    write_result(RESULTS, command="python -m pytest -m evidence tests/results/test_coverage.py", content=result)
    for name, found in result["statistics"].items():
        assert found["covered"] >= 0.93, (name, found)
        assert (found["half_width_over_exact"] or 1.0) <= 1.5, (name, found)
