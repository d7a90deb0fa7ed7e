"""Notes of a search by surface: kept, read again, told in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from result_builders import config, record, summary

from results.objective import Objective
from results.prediction import Comparison, Forecast, PredictedSetting
from results.report import build_report
from results.report_json import report_json
from results.report_pages import report_html, report_markdown
from results.report_sections import report_sections
from results.search_notes import NOTES_FILE, SearchNotes, comparison_row, read_notes, write_notes
from results.store import StudyFolder
from search_spaces.config import Triple
from search_spaces.errors import InputError

SETTING = PredictedSetting(layout="0,3,7", triple=Triple(num_steps=3, eagle_topk=4, num_draft_tokens=8), tp_size=2)


def comparison(measured: float) -> Comparison:
    return Comparison(
        number=1, setting=SETTING, forecast=Forecast(value=100.0, low=95.0, high=105.0), measured=measured
    )


NOTES = SearchNotes(
    traces=(
        {"layout": "0,3,7", "eagle_topk": 4, "problems": ["prompt p: another text from token 5 on"], "failure": None},
        {"layout": "2,4,5", "eagle_topk": 1, "problems": [], "failure": {"kind": "crash", "message": "it died"}},
    ),
    weight_loads=2,
    trace_s=12.5,
    comparisons=tuple(comparison_row(comparison(value)) for value in (102.0, 80.0, 99.0)),
    findings=("2 of 9 settings are not covered by a trace: left to TPE",),
    gain_left=0.004,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    assert read_notes(folder) is None
    write_notes(folder, NOTES)
    assert read_notes(folder) == NOTES


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1, "colour": 3}'])
def test_damaged_notes_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTES_FILE).write_text(text)
    with pytest.raises(InputError, match=r"search\.json: "):
        read_notes(StudyFolder(tmp_path))


def test_sentences() -> None:
    assert NOTES.sentences == (
        "search by surface: 2 of 9 settings are not covered by a trace: left to TPE",
        "trace of layout 2,4,5 at topk 1 failed: crash: it died",
        "trace of layout 0,3,7 at topk 4: prompt p: another text from token 5 on",
        "search by surface: 2 of 3 measurements lay in the 95 % interval predicted for them; off by 2.0% in the "
        "median, -20.0% at most (layout 0,3,7 (3,4,8) tp 2)",
        "the search ended early: no setting that is left was expected to gain more than 0.40% (search.stop_at_gain)",
    )
    assert SearchNotes(fallback="nothing could be traced").sentences == (
        "search by surface: fell back to TPE: nothing could be traced",
    )


def test_the_report_shows_them(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    records = [record("t1", config(), cells=(summary(throughput=100.0),))]
    bare = build_report(folder, Objective(), study="s", records=records)
    assert (bare.search, report_json(bare)["search"], report_json(bare)["switching"]) == (None, None, None)
    write_notes(folder, NOTES)
    report = build_report(folder, Objective(), study="s", records=records)
    content = json.loads(json.dumps(report_json(report)))
    assert content["search"]["weight_loads"] == 2
    assert content["findings"][:5] == list(NOTES.sentences)
    (section,) = [part for part in report_sections(report) if part.title == "Predicted and measured"]
    assert section.rows[1] == ("0,3,7", "(3,4,8)", "2", "100.0", "95.0 to 105.0 (missed)", "80.0", "-20.0%")


def test_a_report_with_predictions_shows_each_plot_once_after_the_settings(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    write_notes(folder, NOTES)
    records = [record("t1", config(), cells=(summary(throughput=100.0),))]
    report = build_report(folder, Objective(), study="s", records=records)
    titles = [section.title for section in report_sections(report) if section.rows]
    assert titles == ["Settings", "Predicted and measured"]
    names = ("accept_length_and_throughput", "layouts")
    text = report_markdown(report, plots={name: f"{name}.png" for name in names})
    page = report_html(report, images={name: name.encode() for name in names})
    assert [text.count(f"({name}.png)") for name in names] == [1, 1]
    assert page.count("<img ") == 2
    for shown, image in ((text, "layouts.png"), (page, "<img ")):
        assert shown.index("Settings") < shown.index(image) < shown.index("Predicted and measured")
