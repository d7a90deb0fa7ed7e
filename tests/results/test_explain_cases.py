"""Situations as people report them, with the verdict each deserves; telling them differently changes none.

The cases are in explain_cases.jsonl: `rows` or `texts` (logs and dumps), the three `verdicts`, what `other` kinds must
say, and words that must be said. The right answers were written down before the tool was asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.explain.explanation import explain
from results.explain.sources import read_observations
from results.external_row import ExternalRow
from results.external_row_file import read_row
from results.verdicts import Explanation

CASES: dict[str, dict[str, Any]] = {
    case["name"]: case
    for case in map(json.loads, (Path(__file__).parent / "explain_cases.jsonl").read_text().splitlines())
}
OF_ROWS = [name for name, case in CASES.items() if "rows" in case and "texts" not in case]
BASELINE = {"role": "baseline", "output_throughput": 100.0, "concurrency": 1}
ANOTHER_MODEL = {
    "role": "control",
    "target_class": "gpt_oss",
    "num_layers": 24,
    "num_steps": 3,
    "eagle_topk": 1,
    "num_draft_tokens": 4,
    "accept_length": 2.5,
    "prompt_set": "elsewhere",
}


def observed(case: dict[str, Any], folder: Path) -> list[ExternalRow]:
    rows = [read_row(content, f"rows.jsonl:{i}") for i, content in enumerate(case.get("rows", ()), start=1)]
    for number, text in enumerate(case.get("texts", ())):
        file = folder / f"server{number}.log"
        file.write_text(text)
        rows += read_observations(file)
    return rows


def answers(explanation: Explanation) -> tuple[list[str], dict[str, str]]:
    return [v.verdict for v in explanation.verdicts], {other.kind: other.verdict for other in explanation.other}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_right(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    explanation = explain(observed(case, tmp_path))
    causes, other = answers(explanation)
    assert causes == case["verdicts"], explanation.to_json()
    assert other == case["other"], explanation.to_json()
    text = json.dumps(explanation.to_json())
    assert [words for words in case.get("says", ()) if words not in text] == []
    for verdict in explanation.verdicts:
        assert verdict.evidence
        assert verdict.next or verdict.verdict != "undecided"


@pytest.mark.parametrize("name", OF_ROWS)
def test_telling_it_differently_changes_nothing(name: str) -> None:
    contents = CASES[name]["rows"]
    told = [
        list(reversed(contents)),
        [row for row in contents for _ in range(2)],
        contents + contents,
        [*contents, BASELINE],
        [BASELINE, *contents],
        [*contents, ANOTHER_MODEL],
        [{"label": "empty"}, *contents],
        [{**row, "label": f"renamed {i}"} for i, row in enumerate(contents)],
    ]
    for rows in told:
        explanation = explain([read_row(content, "rows.jsonl:1") for content in rows])
        assert answers(explanation) == (CASES[name]["verdicts"], CASES[name]["other"]), rows


@given(st.data())
def test_counts_in_another_unit_of_length_say_the_same(data: st.DataObject) -> None:
    """Ten times as long a run with the same shares: certain where it was certain before."""
    histogram = data.draw(
        st.lists(st.integers(0, 400), min_size=2, max_size=7).filter(lambda counts: sum(counts) >= 30)
    )
    steps = len(histogram) - 1
    row = {"num_steps": steps, "eagle_topk": 1, "num_draft_tokens": steps + 1, "tp_size": 1}
    short, long = (
        explain([read_row({**row, "histogram": [n * times for n in histogram]}, "rows.jsonl:1")]) for times in (1, 10)
    )
    assert answers(short) == answers(long)
    if steps > 1:
        given_twice = read_row({**row, "histogram": histogram, "verify_steps": sum(histogram)}, "rows.jsonl:1")
        assert answers(explain([given_twice])) == answers(short)


@given(st.integers(1, 8), st.integers(1, 40), st.floats(0.0, 1.0))
def test_at_topk_1_only_the_steps_count(steps: int, tokens: int, share: float) -> None:
    length = 1 + steps * share
    row = {"num_steps": steps, "eagle_topk": 1, "accept_length": round(length, 3), "tp_size": 4}
    asked = explain([read_row({**row, "num_draft_tokens": tokens}, "rows.jsonl:1")])
    ran = explain([read_row({**row, "num_draft_tokens": steps + 1}, "rows.jsonl:1")])
    assert answers(asked) == answers(ran)
    if tokens > steps + 1:
        assert f"({steps},1,{tokens}) runs as ({steps},1,{steps + 1})" in asked.cause("config").evidence


@given(st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=2, max_size=5, unique=True), st.floats(1.1, 3.9))
def test_equal_at_every_tp_is_never_a_tp_effect(sizes: list[int], length: float) -> None:
    chain = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4, "accept_length": round(length, 3)}
    explanation = explain([read_row({**chain, "tp_size": size}, "rows.jsonl:1") for size in sizes])
    verdict = explanation.cause("parallelism").verdict
    assert verdict == "no" or (verdict == "undecided" and 1 not in sizes)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(2, 80))
def test_numbers_that_cannot_run_are_the_config(steps: int, topk: int, tokens: int) -> None:
    numbers = {"num_steps": steps, "eagle_topk": topk, "num_draft_tokens": tokens}
    explanation = explain([read_row({**numbers, "sglang_version": "0.5.23"}, "rows.jsonl:1")])
    pool = topk + (steps - 1) * topk * topk
    legal = topk == 1 or steps + 1 <= tokens <= pool + 1
    assert explanation.cause("config").verdict == ("undecided" if legal else "yes")
