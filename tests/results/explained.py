"""Reported numbers and what is concluded from them, for tests."""

from __future__ import annotations

from typing import Any

from results.explain.explanation import explain
from results.external_row import ExternalRow
from results.external_row_file import read_row
from results.verdicts import Explanation

CHAIN_3 = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
ONE_STEP = {"num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 8}


def rows(*contents: dict[str, Any]) -> list[ExternalRow]:
    return [read_row(content, f"rows.jsonl:{i}") for i, content in enumerate(contents, start=1)]


def verdicts(*contents: dict[str, Any]) -> tuple[Explanation, tuple[str, str, str]]:
    explanation = explain(rows(*contents))
    answers = tuple(verdict.verdict for verdict in explanation.verdicts)
    assert len(answers) == 3
    return explanation, answers  # type: ignore[return-value]


def other(explanation: Explanation, kind: Any) -> str | None:
    found = explanation.kind(kind)
    return None if found is None else found.verdict


def evidence(explanation: Explanation, kind: Any) -> str:
    found = explanation.kind(kind)
    assert found is not None
    return found.evidence
