"""A study with a cell of every kind, out of request rows: each form of its report says of each why it counts or not."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_builders import cell, closed_loop, config, launch, record

from results.cells import summarised
from results.failures import Failure
from results.objective import Objective
from results.observations import RequestRow
from results.records import TrialRecord
from results.report import Report, build_report
from results.report_json import report_json
from results.report_pages import report_html, report_markdown
from results.store import StudyFolder
from search_spaces.config import EngineConfig
from sweeps.report_view import print_report

HISTOGRAM = (11, 14, 11, 4, 0, 3)
NARROW = "narrow enough after 24 prompts: half-width 1.9%, 2.0% was asked"
DOMINATED = "dominated after 16 prompts: at most 91.0 tokens/s, the best setting so far at least 180.2"
NO_COUNTERS = "the server was started without --enable-metrics"
SMALL_GRAPHS = {"cuda_graph_config": {"decode": {"backend": "full", "max_bs": 4, "bs": [1, 2, 4]}}}
OOM = Failure(phase="launch", kind="oom", message="out of memory while capturing CUDA graphs")
Rows = dict[tuple[int, None], Sequence[RequestRow]]


def requests(latency_s: float, concurrency: int, *, of: int = 40, histogram: Sequence[int] = HISTOGRAM) -> list[Any]:
    """Requests of slightly different length, their counters out of `histogram`."""
    steps, correct = sum(histogram), sum(i * count for i, count in enumerate(histogram))
    rows = closed_loop([latency_s * (1 + 0.05 * (i * 7 % 5)) for i in range(of)], concurrency, tokens=steps + correct)
    counters = {"verify_steps": steps, "correct_drafts": correct, "proposed_drafts": steps * 5}
    return [replace(one, histogram=tuple(histogram), **counters) for one in rows]


def plain(latency_s: float, concurrency: int) -> list[RequestRow]:
    counters = {"verify_steps": None, "correct_drafts": None, "proposed_drafts": None, "histogram": None}
    return [replace(one, **counters) for one in requests(latency_s, concurrency)]


def failing(latency_s: float, concurrency: int) -> list[RequestRow]:
    rows = requests(latency_s, concurrency)
    return [replace(row, error="HTTP 503: busy", attempts=2) if i % 4 == 0 else row for i, row in enumerate(rows)]


def changed(make: Callable[..., list[RequestRow]], **changes: Any) -> Callable[..., list[RequestRow]]:
    return lambda latency_s, concurrency: [replace(row, **changes) for row in make(latency_s, concurrency)]


def trial(
    trial_id: str,
    effective: EngineConfig,
    latency_s: float,
    make: Callable[..., list[RequestRow]] = requests,
    *,
    args: Mapping[str, Any] | None = None,
    stopped: str | None = None,
    simulated: str | None = None,
    **changes: Any,
) -> tuple[TrialRecord, Rows]:
    observed = launch(
        accelerator="NVIDIA H200",
        stand_in_kernels=False,
        effective_args={"device": "cuda", "max_running_requests": 2048, **(args or {})},
        simulated=simulated,
    )
    rows: Rows = {(concurrency, None): make(latency_s, concurrency) for concurrency in (1, 8)}
    cells = [
        summarised(
            cell(of, concurrency=load[0], stopped=stopped, prompts=64, counted_reason=NO_COUNTERS),
            observed,
            effective.triple,
        )
        for load, of in rows.items()
    ]
    return record(trial_id, effective, cells=cells, launch=observed, **changes), rows


def at(topk: int) -> EngineConfig:
    return config((0, 3, 7), (5, topk, 6))


STUDY = (
    trial("base", config(None, None), 1.0, plain, role="baseline"),
    trial("best", at(9), 0.5, lambda s, c: requests(s, c, of=24), stopped=NARROW),
    trial("tied", at(1), 0.5),
    trial("slow", config((2, 4, 5), (5, 1, 6)), 1.2, lambda s, c: requests(s, c, of=16), stopped=DOMINATED),
    trial("warm", at(2), 0.3, changed(requests, cached_tokens=45)),
    trial("loop", at(3), 0.3, changed(requests, output_ids=(5, 6) * 53)),
    trial("fake", at(4), 0.4, lambda s, c: requests(s, c, histogram=(0, 0, 30, 13))),
    trial("eager", at(5), 0.55, args=SMALL_GRAPHS),
    trial("cap", at(6), 0.55, args={"max_running_requests": 6}),
    trial("errors", at(7), 0.6, failing),
    trial("counts", at(8), 0.6, changed(requests, correct_drafts=99)),
    (record("large", config((0, 3, 7), (5, 8, 64)), failure=OOM), {}),
    trial("confirmed", at(1), 0.505, role="confirm"),
)

SAID = {
    "best": [f"at concurrency 1 and concurrency 8: {NARROW}", "best"],
    "slow": [f"at concurrency 1 and concurrency 8: {DOMINATED}"],
    "warm": ["warm cache: 90% of the prompt tokens were cached before this cell began"],
    "loop": ["degenerate output: 40 of 40 outputs loop or repeat a few tokens (2 distinct tokens in all)"],
    "fake": ["simulated acceptance: each of 1720 verify steps accepted 2 or 3 drafts", "unset SGLANG_SIMULATE_ACC_LEN"],
    "eager": ["decoding 8 requests at once runs without CUDA graphs, which cover batches up to 4"],
    "cap": [
        "the server runs at most 6 requests at once (max_running_requests), 2 of 8 wait in its queue",
        "at most 6 requests at once with speculation, 2048 without it (max_running_requests), at concurrency 8",
    ],
    "errors": ["10 of 40 requests failed (first: HTTP 503: busy)"],
    "counts": ["40 of 40 requests have inconsistent counters", "the histogram accepts 63 drafts, the server 99"],
    "large": [f"failed with oom in phase launch: {OOM.message}"],
}
NOT_RANKED = {"warm", "loop", "fake", "errors", "counts"}


def study(path: Path, trials: Sequence[tuple[TrialRecord, Rows]] = STUDY) -> Report:
    folder = StudyFolder(path)
    folder.open_for_write()
    for one, rows in trials:
        folder.write_trial(one, rows, {})
    return build_report(folder, Objective(), study="demo")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return study(tmp_path_factory.mktemp("study") / "demo")


def terminal(report: Report) -> str:
    stream = io.StringIO()
    print_report(report, stream)
    return " ".join(stream.getvalue().split())


@pytest.mark.parametrize("form", [report_markdown, report_html, terminal])
def test_every_reason_stands_beside_its_trial(report: Report, form: Callable[[Report], str]) -> None:
    text = form(report)
    lines = text.splitlines() if "\n" in text else text.split(" - ")
    for trial_id, sentences in SAID.items():
        said = " ".join(line for line in lines if f"({trial_id}" in line)
        assert all(sentence in said for sentence in sentences if sentence != "best"), (trial_id, said)
    assert "It ties with the nominally best one" in text
    assert "Drift was not tested: no baseline was launched 3 times" in text
    assert "-58%" in text
    assert "a baseline has no standing" in text


def test_the_json_says_it_cell_by_cell(report: Report) -> None:
    found = report_json(report)
    rows = {trial: row for row in (*found["settings"], *found["baselines"]) for trial in row["trials"]}
    for trial_id, row in rows.items():
        status = "failed" if trial_id == "large" else "not ranked" if trial_id in NOT_RANKED else "ranked"
        assert row["status"] == status, trial_id
        for one in row["cells"]:
            assert one["ranked"] is (one["reasons"] == [])
            assert one["workload"] == "w" * 16
            names = {name for name, value in one.items() if value is None} - {"request_rate", "stopped", "prompts"}
            assert names == set(one["missing"])
    texts = {
        trial_id: str([row["reasons"], row["cells"], row["loads"], row["failures"]]) for trial_id, row in rows.items()
    }
    for trial_id, sentences in SAID.items():
        expected = [OOM.message] if trial_id == "large" else [s.split(": ", 1)[-1] for s in sentences if s != "best"]
        assert all(sentence in texts[trial_id] for sentence in expected), (trial_id, texts[trial_id])
    assert rows["tied"]["standing"] == "tie"
    assert rows["tied"]["confirmed"] is True
    cells = rows["tied"]["cells"]
    assert [cell["missing"]["counted_accept_length"] for cell in cells] == [NO_COUNTERS] * 4
    assert cells[0]["conditional_acceptance"][:2] == pytest.approx([32 / 43, 18 / 32])
    assert cells[0]["itl_ms_p50"] > 0
    assert rows["tied"]["loads"][0]["outputs"] == {"compared": 40, "identical_share": 1.0, "first_divergence": None}
    assert rows["loop"]["loads"][0]["outputs"]["first_divergence"] == 0
    assert rows["base"]["loads"][0]["outputs"] is None


def test_a_simulated_study_says_so_first_and_last(tmp_path: Path) -> None:
    told = "SGLANG_SIMULATE_ACC_LEN=3.3"
    trials = [
        trial("b", config(None, None), 1.0, plain, role="baseline", simulated=told),
        trial("t", at(1), 0.5, simulated=told),
    ]
    report = study(tmp_path / "simulated", trials)
    assert report.summary[0] == f"Acceptance was simulated ({told}): nothing below is a measurement of the draft."
    assert "Take SGLANG_SIMULATE_ACC_LEN out of engine.env" in report.next_step
    assert f"simulated acceptance ({told})" in terminal(report)


def test_what_stands_beside_a_value_is_of_the_same_launches(tmp_path: Path) -> None:
    looping = trial("first", at(1), 0.5, changed(requests, output_ids=(5, 6) * 53))
    good = trial("second", at(1), 0.5, lambda s, c: requests(s, c, histogram=(30, 5, 5, 2, 1, 0)))
    (row,) = study(tmp_path / "two", [looping, good]).ranking.settings
    assert row.accept_length is not None
    assert row.accept_length.value == good[0].cells[0].accept_length.value
    assert row.p1 == good[0].cells[0].p1
