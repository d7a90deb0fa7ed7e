"""The objective: which number, which way, and a reason instead of a zero."""

from __future__ import annotations

import pytest
from result_builders import record, summary

from results.failures import Failure
from results.objective import METRICS, MissingValue, Objective
from results.summary import Estimate


def test_the_default_is_throughput_at_the_first_concurrency() -> None:
    measured = record("t1", cells=[summary(throughput=120.0, concurrency=4), summary(throughput=300.0, concurrency=16)])
    assert Objective().value(measured) == 120.0
    assert Objective(concurrency=16).value(measured) == 300.0
    assert Objective(metric="accept_length", goal="minimize").direction == "minimize"
    assert Objective(concurrency=8).value(measured) == MissingValue(reason="no cell at concurrency 8")


def test_latencies_are_minimised_and_rates_maximised() -> None:
    directions = {metric: Objective(metric=metric).direction for metric in METRICS}
    assert [metric for metric, way in directions.items() if way == "maximize"] == [
        "output_throughput",
        "steady_throughput",
        "accept_length",
    ]


def test_a_missing_value_has_a_reason() -> None:
    cell = summary(accept_length=None, missing=(("accept_length", "fewer than one log interval"),))
    assert Objective(metric="accept_length").value(record("t1", cells=[cell])) == MissingValue(
        reason="fewer than one log interval"
    )
    warm = summary(not_ranked=("warm cache",))
    assert Objective().value(record("t1", cells=[warm])) == MissingValue(reason="warm cache")
    failed = record("t1", failure=Failure(phase="launch", kind="oom", message="out of memory"))
    assert Objective().value(failed) == MissingValue(reason="out of memory")


def test_a_plain_number_has_the_interval_that_its_cell_states() -> None:
    cell = summary(ttft_ms_p50=50.0, tpot_ms_p99=9.0, requests=40, intervals=(("ttft_ms_p50", 45.0, 57.0),))
    assert Objective(metric="ttft_ms_p50").estimate(cell) == Estimate(value=50.0, low=45.0, high=57.0, count=40)
    assert Objective(metric="tpot_ms_p99").estimate(cell) == Estimate(value=9.0, low=9.0, high=9.0, count=0)


def test_unknown_metrics_are_refused_with_the_legal_ones() -> None:
    with pytest.raises(ValueError, match="'speed' is none of output_throughput"):
        Objective(metric="speed")  # type: ignore[arg-type]
