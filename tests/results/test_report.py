"""Reports: what is said, in every form, and that a page needs nothing from outside."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from result_builders import config, launch, record, summary
from rich.console import Console

from results.failures import Failure
from results.objective import Objective
from results.report import Report, build_report
from results.report_json import report_json
from results.report_pages import report_html, report_markdown, write_report
from results.store import StudyFolder
from results.table import ranking_table, table_columns, table_rows

RIGHT, WRONG = (0, 3, 7), (2, 4, 5)
OOM = Failure(phase="launch", kind="oom", message="out of memory <at> graph capture | 5")


def trial(trial_id: str, effective, throughput: float, length: float | None = 2.5, **changes):
    return record(trial_id, effective, cells=[summary(throughput=throughput, accept_length=length)], **changes)


def study(*, shipped: float = 90.0):
    return [
        trial("b1", config(None, None), 100.0, None, role="baseline"),
        trial("t1", config(RIGHT, (5, 1, 6)), 180.0, 3.4),
        trial("t2", config(WRONG, (5, 1, 6)), shipped, 1.6, layout="shipped", role="suspect"),
        record("t3", config(RIGHT, (5, 8, 64)), failure=OOM),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    made = StudyFolder(tmp_path / "study")
    made.open_for_write()
    return made


def report_of(folder: StudyFolder, records, **changes) -> Report:
    for one in records:
        folder.write_trial(one, {}, {})
    return build_report(folder, Objective(), study="demo", **changes)


def test_the_summary_names_the_choice_the_speedup_and_the_suspect(folder: StudyFolder) -> None:
    words = " ".join(report_of(folder, study()).summary)
    assert words.startswith("Run layout 0,3,7 at (5,1,6), tp 1: output throughput (tokens/s) 180.0 ±1.8")
    assert "1.80 times" in words
    assert "The suspect (layout 2,4,5 (shipped) at (5,1,6), tp 1) reaches 50% of that value" in words
    assert "accept length 1.60 ±0.02 against 3.40 ±0.03" in words


def test_speculation_that_does_not_pay_is_said(folder: StudyFolder) -> None:
    records = [trial("b1", config(None, None), 100.0, None, role="baseline"), trial("t1", config(RIGHT), 70.0)]
    assert "Speculation does not pay here" in " ".join(report_of(folder, records).summary)


def test_ties_and_what_cannot_be_told_are_said(folder: StudyFolder) -> None:
    records = [trial("t1", config(RIGHT, (5, 4, 16)), 181.0), trial("t2", config(RIGHT, (5, 1, 6)), 180.0)]
    words = " ".join(report_of(folder, records).summary)
    assert words.startswith("Run layout 0,3,7 at (5,1,6)")
    assert "ties with the nominally best one (layout 0,3,7 at (5,4,16), tp 1, 181.0 ±1.8)" in words
    assert "There is no baseline" in words


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (study(), "`specsweep isolate demo` says why the suspect is slower"),
        ([trial("t1", config(RIGHT), 100.0)], "measured on one launch: confirm it"),
        (
            [trial("t1", config(RIGHT), 100.0), trial("c1", config(RIGHT), 99.0, role="confirm")],
            "Start the server with the command below.",
        ),
        (
            [trial(f"t{i}", config(RIGHT), speed) for i, speed in enumerate((100.0, 160.0))]
            + [trial("u1", config(WRONG), 110.0)],
            "here, which hides differences that matter",
        ),
        ([record("t1", failure=OOM)], "Mend the reason above"),
        ([], "`specsweep resume demo`"),
        ([trial(f"t{i}", config((0, 1, i)), 100.0, 3.24) for i in (2, 3, 4)], "Unset SGLANG_SIMULATE_ACC_LEN"),
    ],
)
def test_the_next_step_fits_the_study(folder: StudyFolder, records, words: str) -> None:
    report = report_of(folder, records)
    assert words in report.next_step
    assert report.next_step in report_markdown(report).split("## Next step")[1]


def test_nothing_ranked_gives_the_most_frequent_reason(folder: StudyFolder) -> None:
    warm = [record(f"t{i}", config((0, 1, i)), cells=[summary(not_ranked=("warm cache",))]) for i in (2, 3)]
    report = report_of(folder, [*warm, record("t9", failure=OOM)])
    assert report.summary == ("No setting could be ranked; the most frequent reason (2 of 3): warm cache.",)
    assert report.launch is None


def test_the_command_is_that_of_a_fresh_launch_without_the_studys_ports(folder: StudyFolder) -> None:
    words = (
        "python",
        "-m",
        "sglang.launch_server",
        "--port",
        "30100",
        "--draft",
        "/work-dir/draft.json",
        "--tp-size",
        "1",
    )
    switched = replace(trial("t1", config(RIGHT), 180.0), launch=launch(command=words, switch_s=0.4))
    fresh = replace(
        trial("t2", config(RIGHT), 180.0),
        launch=launch(command=words, files=(("/work-dir/draft.json", "{}"),), environment=(("A", "1"),)),
    )
    report = report_of(folder, [switched, fresh])
    assert report.launch is not None
    copied = folder.trial_file("t2", "draft.json")
    assert report.launch.words == (*words[:3], "--draft", str(copied), "--tp-size", "1")
    assert copied.read_text() == "{}"
    assert str(report.launch).startswith("A=1 \\\n  python -m sglang.launch_server \\\n  --draft")
    assert report.launch.script == folder.trial_file("t2", "launch.sh")


def test_json_holds_every_number_and_is_plain(folder: StudyFolder) -> None:
    data = json.loads(json.dumps(report_json(report_of(folder, study(), verdicts=["layout: yes"]))))
    assert data["schema"] == 1
    assert data["objective"] == {
        "metric": "output_throughput",
        "concurrency": 1,
        "request_rate": None,
        "direction": "maximize",
        "mlflow_metric": "throughput_c1",
    }
    best, suspect, failed = data["settings"]
    assert data["choice"] == data["best"] == best["id"]
    assert data["suspect"] == suspect["id"]
    assert (best["layout"], best["num_steps"], best["ceiling"]) == ("0,3,7", 5, 6)
    assert best["accept_length"] == pytest.approx({"value": 3.4, "low": 3.366, "high": 3.434, "count": 40})
    assert best["loads"][0]["speedup"]["value"] == pytest.approx(1.8)
    assert suspect["standing"] == "worse"
    assert suspect["labels"] == ["shipped"]
    assert failed["status"] == "failed"
    assert failed["failures"][0]["kind"] == "oom"
    assert failed["objective"] is None
    assert data["summary"][-1] == "layout: yes"
    assert data["baselines"][0]["loads"][0]["output_throughput"]["value"] == 100.0


def test_a_warning_of_every_setting_is_said_once(folder: StudyFolder) -> None:
    records = [
        record(f"t{i}", config((0, 1, i)), cells=[summary(throughput=100.0 * i, warnings=("same",))]) for i in (2, 3, 4)
    ]
    assert report_markdown(report_of(folder, records)).count("same") == 1


def test_the_table_has_one_row_a_setting_and_its_columns_match(folder: StudyFolder) -> None:
    ranking = report_of(folder, study()).ranking
    rows = table_rows(ranking)
    assert {len(row) for row in rows} == {len(table_columns(ranking))}
    assert [row[0] for row in rows] == ["0,3,7", "2,4,5 (shipped)", "0,3,7", "baseline"]
    assert [row[-1] for row in rows] == ["best (run this)", "-50%", "failed: oom", "-"]
    assert rows[0][3:7] == ("3.40 ±0.03", "0.74", "180.0 ±1.8", "1.80 ±0.08")
    assert ranking_table(ranking).row_count == 4


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_terminal_gets_as_much_as_fits_and_nothing_cut(folder: StudyFolder, width: int) -> None:
    records = [replace(one, cells=(*one.cells, *(replace(c, concurrency=8) for c in one.cells))) for one in study()]
    ranking = report_of(folder, records).ranking
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(ranking_table(ranking, width=width))
    text = console.file.getvalue()
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 2 + 4
    assert all(len(line) <= width for line in lines)
    assert "best (run this)" in text
    assert "2,4,5 (shipped)" in text
    assert ("@8" in text) is (width == 140)


def test_a_page_escapes_and_needs_nothing_from_outside(folder: StudyFolder) -> None:
    report = report_of(folder, study())
    page = report_html(report, images={"layouts": b"\x89PNG"})
    assert "out of memory &lt;at&gt; graph capture" in page
    assert "<at>" not in page
    assert 'class="chosen"' in page
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "<script" not in page
    assert "\\| 5" not in page


def test_markdown_rows_keep_their_columns(folder: StudyFolder) -> None:
    report = report_of(folder, study())
    lines = [line for line in report_markdown(report).splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_written_reports_hold_real_pictures(folder: StudyFolder) -> None:
    report = report_of(folder, study())
    paths = write_report(report, folder)
    assert sorted(path.name for path in paths) == [
        "plot-accept-length-and-throughput.png",
        "plot-acceptance-by-position.png",
        "plot-layouts.png",
        "report.html",
        "report.json",
        "report.md",
    ]
    for path in folder.path.glob("plot-*.png"):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") > 900
    assert "plot-layouts.png" in folder.report_path("md").read_text()
    assert folder.report_path("html").read_text().count("data:image/png;base64,") == 3


def test_a_plot_that_fails_does_not_cost_the_report(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> dict[str, bytes]:
        raise RuntimeError("no fonts")

    monkeypatch.setattr("results.plots.plots", broken)
    paths = write_report(report_of(folder, study()), folder)
    assert [path.name for path in paths] == ["report.md", "report.html", "report.json"]


def test_one_plot_that_fails_does_not_cost_the_others(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.plots.draw_positions", lambda *_: 1 / 0)
    paths = write_report(report_of(folder, study()), folder)
    names = [path.name for path in paths if path.suffix == ".png"]
    assert names == ["plot-accept-length-and-throughput.png", "plot-layouts.png"]


def test_a_value_just_outside_its_interval_is_drawn(folder: StudyFolder) -> None:
    """Older records hold throughputs of open loops that rounding put there."""
    records = [trial("t1", config(RIGHT), 180.0, 3.4), trial("t2", config(WRONG), 90.0, 1.6)]
    estimate = replace(records[0].cells[0].output_throughput, low=180.1)
    records[0] = replace(records[0], cells=(replace(records[0].cells[0], output_throughput=estimate),))
    paths = write_report(report_of(folder, records), folder)
    assert "plot-accept-length-and-throughput.png" in [path.name for path in paths]


def test_an_empty_study_has_a_report_without_plots(folder: StudyFolder) -> None:
    report = report_of(folder, [])
    assert report.summary == ("No setting has been measured yet.",)
    paths = write_report(report, folder)
    assert [path.name for path in paths] == ["report.md", "report.html", "report.json"]


def test_a_latency_objective_has_its_own_column(folder: StudyFolder) -> None:
    for one in study():
        folder.write_trial(one, {}, {})
    report = build_report(folder, Objective(metric="tpot_ms_p50"), study="demo")
    assert "TPOT p50 ms" in table_columns(report.ranking)
    assert "Run layout" in report.summary[0]


def test_what_ended_early_says_why_in_every_form(folder: StudyFolder) -> None:
    reason = "narrow enough after 32 prompts: half-width 1.9%, 2.0% was asked"
    cells = [summary(throughput=180.0, stopped=reason, prompts=64), summary(throughput=300.0, concurrency=8)]
    report = report_of(folder, [record("t1", config(RIGHT), cells=cells)])
    assert report_json(report)["settings"][0]["stopped"] == {"1": reason}
    part = report_markdown(report).split("## Ended before the last prompt")[1].split("##")[0]
    assert f"(t1) at concurrency 1: {reason}" in part
    assert reason in report_html(report)
