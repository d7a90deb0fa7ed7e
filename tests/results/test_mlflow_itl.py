"""Times between arrivals in MLflow: under their own name where a chunk carries several tokens."""

from __future__ import annotations

from result_builders import cell, config, record, row, spec_row

from results.cells import summarise_cell
from results.mlflow_fields import run_fields
from results.summary import CellSummary
from search_spaces.config import Triple

TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
TIMES_S = tuple(0.1 * (i + 1) for i in range(5))


def measured(chunk_tokens: tuple[int, ...], concurrency: int) -> CellSummary:
    """One request whose chunks arrive every 100 ms."""
    tokens = sum(chunk_tokens)
    answer = row(
        completion_tokens=tokens, chunk_times_s=TIMES_S, chunk_tokens=chunk_tokens, finished_s=0.5, first_token_s=0.1,
        histogram=None, verify_steps=None, correct_drafts=None, proposed_drafts=None, output_ids=tuple(range(tokens)),
    )  # fmt: skip
    return summarise_cell(cell([answer], concurrency=concurrency), None)


def test_a_time_between_chunks_is_not_called_one_between_tokens() -> None:
    cells = [measured((1, 3, 3, 3, 3), 1), measured((1, 1, 1, 1, 1), 4)]
    assert [one.itl_is_per_chunk for one in cells] == [True, False]
    logged = run_fields(record("t1", config(), cells=cells), {}).metrics
    assert {name: round(value, 6) for name, value in logged.items() if "itl" in name or "chunk" in name} == {
        # the first cell stands under plain names as well
        "itl_per_chunk_ms_p50": 100.0,
        "itl_per_chunk_ms_p50_c1": 100.0,
        "itl_per_chunk_ms_p99": 100.0,
        "itl_per_chunk_ms_p99_c1": 100.0,
        "tokens_per_chunk": 3.0,
        "tokens_per_chunk_c1": 3.0,
        "itl_ms_p50_c4": 100.0,
        "itl_ms_p99_c4": 100.0,
        "tokens_per_chunk_c4": 1.0,
    }


def test_without_streams_there_is_none() -> None:
    answer = spec_row("p0", (11, 14), 6, chunk_times_s=(), chunk_tokens=(), first_token_s=None)
    logged = run_fields(record("t1", cells=[summarise_cell(cell([answer]), TRIPLE)]), {}).metrics
    assert [name for name in logged if "itl" in name or "chunk" in name] == []
