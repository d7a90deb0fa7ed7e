"""An objective that is read at a request rate: which cell, what is said of it, what it is called in MLflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_builders import config, record, row, summary

from results.mlflow_fields import metric_name, run_fields
from results.objective import METRICS, MissingValue, Objective
from results.ranking import rank
from results.records import TrialRecord
from results.report import build_report
from results.report_json import report_json
from results.report_sentences import summary_sentences
from results.store import StudyFolder
from results.summary import CellSummary
from results.table import standing_legend, table_columns

AT_RATE = Objective(metric="ttft_ms_p99", request_rate=2.5)


def open_loop(rate: float, **changes: Any) -> CellSummary:
    return replace(summary(**changes), concurrency=0, request_rate=rate)


def trial(trial_id: str, steps: int, closed_ms: float, open_ms: float) -> TrialRecord:
    cells = [
        summary(concurrency=4, ttft_ms_p99=closed_ms),
        open_loop(1.0, ttft_ms_p99=closed_ms),
        open_loop(2.5, ttft_ms_p99=open_ms, intervals=(("ttft_ms_p99", open_ms, open_ms),)),
    ]
    return record(trial_id, config((0, 3, 7), (steps, 1, steps + 1)), cells=cells)


STUDY = [trial("t1", 5, 10.0, 300.0), trial("t2", 3, 20.0, 100.0)]
"""The first is better at every load but that of the objective."""


def test_its_cell_is_the_one_at_that_rate() -> None:
    assert AT_RATE.value(STUDY[0]) == 300.0
    assert Objective(metric="ttft_ms_p99").value(STUDY[0]) == 10.0
    assert Objective(metric="ttft_ms_p99", request_rate=4).value(STUDY[0]) == MissingValue(
        reason="no cell at 4 requests/s"
    )
    assert str(AT_RATE) == "99th percentile of the time to first token (ms) at 2.5 requests/s"
    assert str(Objective(concurrency=8)).endswith("at concurrency 8")
    assert str(Objective()).endswith("at the first concurrency")


def test_it_is_read_at_one_load_that_has_its_metric() -> None:
    with pytest.raises(ValueError, match="at concurrency 8 and at 2 requests/s"):
        Objective(concurrency=8, request_rate=2.0)
    with pytest.raises(ValueError, match="an open loop has no steady_throughput"):
        Objective(metric="steady_throughput", request_rate=2.0)


def test_it_ranks_and_every_sentence_says_so() -> None:
    ranking = rank(STUDY, AT_RATE)
    assert ranking.load == (0, 2.5)
    assert [one.setting.trial_ids for one in ranking.settings] == [("t2",), ("t1",)]
    assert rank(STUDY, Objective(metric="ttft_ms_p99")).best.setting.trial_ids == ("t1",)
    assert "TTFT p99 ms" in table_columns(ranking)
    assert "at 2.5 requests/s" in standing_legend(ranking)
    assert "100.0 at 2.5 requests/s" in summary_sentences(ranking, None)[0].replace(" ±0.0", "")


def test_the_report_holds_the_rate_and_mlflows_name(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    folder.open_for_write()
    for one in STUDY:
        folder.write_trial(one, {(0, 2.5): (row(),)}, {})
    content = report_json(build_report(folder, AT_RATE, study="s"))
    assert content["objective"] == {
        "metric": "ttft_ms_p99",
        "concurrency": None,
        "request_rate": 2.5,
        "direction": "minimize",
        "mlflow_metric": "ttft_ms_p99_r2.5",
    }
    assert content["settings"][0]["objective"]["value"] == 100.0


def test_an_objective_is_a_metric_of_every_run() -> None:
    logged = run_fields(STUDY[0], {}).metrics
    assert logged[metric_name("ttft_ms_p99", (0, 2.5))] == 300.0
    assert metric_name("output_throughput", (8, None)) == "throughput_c8"
    cells = [summary(concurrency=8, steady_throughput=9.0, ttft_ms_p50=1.0, ttft_ms_p99=2.0, tpot_ms_p50=3.0)]
    logged = run_fields(record("t1", cells=cells), {}).metrics
    assert {metric_name(metric, (8, None)) for metric in METRICS} - set(logged) <= {"tpot_ms_p99_c8"}
