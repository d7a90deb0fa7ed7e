"""The benchmark's own study, short: planted causes are named, others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.attribution_confusion import main, run

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_few_studies_name_the_planted_causes() -> None:
    result = run(studies=12, prompts=80, seed=1)
    assert result["false_cause_rate"] <= 0.05
    assert result["missed_cause_rate"] <= 0.10
    assert result["share_coverage"] >= 0.8


@pytest.mark.evidence
def test_two_hundred_studies_name_the_planted_causes() -> None:
    assert main(["--out", str(RESULTS / "attribution_confusion.json")]) == 0
