"""The table of requests: every row as it was, keyed by its load, small, and old ones readable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_builders import cell, closed_loop, row

from results.observations import RequestRow
from results.request_table import decode_rows, encode_rows, output_sha256, rows_by_cell


def test_rows_are_keyed_by_the_load_of_their_cell() -> None:
    cells = [cell([row()], concurrency=4), cell([row()], concurrency=0, request_rate=2.5)]
    assert list(rows_by_cell(cells)) == [(4, None), (0, 2.5)]


ROWS = st.builds(
    RequestRow,
    prompt_id=st.text(max_size=8),
    sent_s=st.floats(0, 1e6),
    first_token_s=st.none() | st.floats(0, 1e6),
    finished_s=st.floats(0, 1e6),
    chunk_times_s=st.lists(st.floats(0, 1e6), max_size=4).map(tuple),
    chunk_tokens=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    prompt_tokens=st.integers(0, 2**31 - 1),
    cached_tokens=st.none() | st.integers(0, 99),
    completion_tokens=st.integers(0, 99),
    verify_steps=st.none() | st.integers(0, 99),
    proposed_drafts=st.none() | st.integers(0, 99),
    correct_drafts=st.none() | st.integers(0, 99),
    histogram=st.none() | st.lists(st.integers(0, 99), max_size=5).map(tuple),
    output_ids=st.lists(st.integers(0, 2**31 - 1), max_size=20).map(tuple),
    finish_reason=st.none() | st.text(max_size=5),
    attempts=st.integers(1, 5),
    error=st.none() | st.text(max_size=10),
    first_sent_s=st.none() | st.floats(0, 1e6),
)


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 512), st.none() | st.floats(0.1, 9)),
        st.lists(ROWS, min_size=1, max_size=4).map(tuple),
        max_size=3,
    )
)
def test_any_rows_survive_the_table(tmp_path_factory: pytest.TempPathFactory, rows) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    path.write_bytes(encode_rows(rows))
    assert decode_rows(path) == rows


def test_a_table_without_the_first_attempts_time_is_still_read(tmp_path: Path) -> None:
    """As it was written before that time was kept."""
    rows = (row(sent_s=2.0, finished_s=3.0, first_sent_s=0.5, attempts=2), row(first_sent_s=0.0, finished_s=1.5))
    path = tmp_path / "rows.parquet"
    path.write_bytes(encode_rows({(1, None): rows}))
    (now,) = decode_rows(path).values()
    assert now == rows
    assert [one.e2e_s for one in now] == [2.5, 1.5]
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["first_sent_s"]), path)
    (before,) = decode_rows(path).values()
    assert before == tuple(replace(one, first_sent_s=None) for one in rows)
    # a retried request's first attempt is then not known
    assert [one.e2e_s for one in before] == [None, 1.5]


def test_equal_outputs_have_equal_hashes() -> None:
    assert output_sha256((1, 2, 3)) == output_sha256([1, 2, 3]) != output_sha256((1, 2, 4))


def test_a_table_of_many_requests_is_small() -> None:
    rows = tuple(closed_loop([1.0] * 200, 4, tokens=128, chunk_times_s=(), chunk_tokens=()))
    assert len(encode_rows({(4, None): rows})) < 200 * 128 * 4
