"""A fresh reader can tell for each cell why it is or is not ranked: in every form of the report."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from result_builders import config, record, summary

from results.failures import Failure
from results.objective import Objective
from results.records import TrialRecord
from results.report import Report, build_report
from results.report_json import report_json
from results.report_pages import report_html, report_markdown
from results.store import StudyFolder
from search_spaces.config import EngineConfig
from sweeps.report_view import print_report

RIGHT, WRONG = (0, 3, 7), (2, 4, 5)
WARM = "warm cache: 90% of the prompt tokens were cached before this cell began"
LOOPS = "degenerate output: 12 of 12 outputs loop or repeat a few tokens (2 distinct tokens in all)"
OOM = Failure(phase="launch", kind="oom", message="out of memory while capturing CUDA graphs")
FAILED = "3 of 40 requests failed (first: HTTP 503)"


def trial(
    trial_id: str,
    effective: EngineConfig,
    throughput: float,
    *,
    bad: Sequence[int] = (),
    reason: str = WARM,
    cell: dict[str, Any] | None = None,
    **changes: Any,
) -> TrialRecord:
    """Cells at concurrency 1 and 8; those in `bad` are not ranked, for `reason`."""
    length = None if effective.is_baseline else 2.5
    cells = [
        summary(
            throughput=throughput * concurrency,
            accept_length=length,
            concurrency=concurrency,
            not_ranked=(reason,) if concurrency in bad else (),
            **(cell or {}),
        )
        for concurrency in (1, 8)
    ]
    return record(trial_id, effective, cells=cells, **changes)


STUDY = (
    trial("b1", config(None, None), 100.0, role="baseline"),
    trial("best", config(RIGHT, (5, 4, 16)), 180.0),
    trial("equal", config(RIGHT, (5, 1, 6)), 179.5),
    trial("slow", config(WRONG, (5, 1, 6)), 90.0, cell={"stopped": "dominated after 24 prompts"}),
    trial("half", config(RIGHT, (2, 1, 3)), 120.0, bad=(8,), cell={"warnings": (FAILED,)}),
    trial("warm", config(RIGHT, (3, 1, 4)), 310.0, bad=(1, 8)),
    trial("loops", config(RIGHT, (7, 1, 8)), 300.0, bad=(1,), reason=LOOPS),
    record("large", config(RIGHT, (5, 8, 64)), failure=OOM),
)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    folder = StudyFolder(tmp_path / "study")
    folder.open_for_write()
    for one in STUDY:
        folder.write_trial(one, {}, {})
    return build_report(folder, Objective(), study="demo")


REASONS = (
    f"layout 0,3,7 at (2,1,3), tp 1 (half) at concurrency 8: {WARM}",
    f"layout 0,3,7 at (3,1,4), tp 1 (warm) at concurrency 1 and concurrency 8: {WARM}",
    f"layout 0,3,7 at (7,1,8), tp 1 (loops) at concurrency 1: {LOOPS}",
    f"layout 0,3,7 at (5,8,64), tp 1 (large): failed with oom in phase launch: {OOM.message}",
)


def test_every_unranked_cell_and_failed_trial_has_its_reason(report: Report) -> None:
    text = report_markdown(report)
    part = text.split("## Not ranked, and why")[1].split("##")[0]
    assert [line.removeprefix("- ") for line in part.strip().splitlines()] == list(REASONS)
    assert f"- layout 0,3,7 at (2,1,3), tp 1 (half): {FAILED}" in text
    assert "(slow) at concurrency 1 and concurrency 8: dominated after 24 prompts" in text
    page = report_html(report)
    for reason in REASONS:
        assert reason in page


def test_the_table_says_what_its_standings_mean(report: Report) -> None:
    text = report_markdown(report)
    rows = {line.split(" | ")[1]: line for line in text.splitlines() if line.startswith("| 0,3,7 |")}
    assert rows["(5,4,16)"].endswith("| best |")
    assert rows["(5,1,6)"].endswith("| tie (run this) |")
    assert rows["(2,1,3)"].endswith("| -33% |")
    assert rows["(5,8,64)"].endswith("| failed: oom |")
    # what loops or was cached is shown, but not as a number to compare
    assert "| (2.50 ±0.02) | (0.74) | - | - |" in rows["(7,1,8)"]
    assert rows["(7,1,8)"].endswith("| not ranked |")
    assert "Standing by output throughput (tokens/s) at concurrency 1: `best` has the best value; `tie` differs" in text
    assert "`?`" not in text


def test_the_terminal_has_the_reasons_too(report: Report) -> None:
    stream = io.StringIO()
    print_report(report, stream)
    words = " ".join(stream.getvalue().split())
    for reason in REASONS:
        assert reason in words
    assert "(half): 3 of 40 requests failed (first: HTTP 503)" in words
    assert "(slow) at concurrency 1 and concurrency 8: dominated after 24 prompts" in words
    assert "Standing by output throughput (tokens/s) at concurrency 1: `best` has the best value" in words
    assert "a baseline has no standing" in words


def test_the_json_has_every_cell(report: Report) -> None:
    rows = {row["trials"][0]: row for row in report_json(report)["settings"]}
    assert [(cell["load"], cell["ranked"], cell["reasons"]) for cell in rows["half"]["cells"]] == [
        ("1", True, []),
        ("8", False, [WARM]),
    ]
    assert rows["slow"]["cells"][0]["stopped"] == "dominated after 24 prompts"
    assert rows["large"]["cells"] == []


def test_a_terminal_is_not_flooded(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    folder.open_for_write()
    for i in range(12):
        folder.write_trial(record(f"t{i:02}", config((0, 1, 2 + i)), failure=OOM), {}, {})
    stream = io.StringIO()
    print_report(build_report(folder, Objective(), study="demo"), stream)
    assert stream.getvalue().count("failed with oom") == 8
    assert "and 4 more, in the report" in stream.getvalue()
