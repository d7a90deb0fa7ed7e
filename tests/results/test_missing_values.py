"""Whatever was measured: a number that is missing has its reason, and no reason stands beside a number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_builders import BASE_ROW, cell, closed_loop, row, spec_row

from results.cell_row import cell_json, cell_text
from results.cells import summarise_cell
from results.observations import CellObservation, RequestRow
from search_spaces.config import Triple

TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
ONE_STEP = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)
NO_MEASUREMENT = {"request_rate", "stopped", "prompts"}
"""None here says that there was nothing of the kind, not that a number is missing."""

rows = st.builds(
    replace,
    st.sampled_from([BASE_ROW, spec_row("p1", (4, 3, 2), 6), spec_row("p2", (0,), 2)]),
    prompt_id=st.sampled_from(["p0", "p1", "p2"]),
    first_token_s=st.sampled_from([None, 0.1]),
    cached_tokens=st.sampled_from([None, 0, 7]),
    completion_tokens=st.sampled_from([0, 1, 2, 106]),
    verify_steps=st.sampled_from([None, 0, 9, 43]),
    histogram=st.sampled_from([None, (11, 14, 11, 4, 0, 3)]),
    correct_drafts=st.sampled_from([None, 63]),
    output_ids=st.sampled_from([(), (5,), tuple(range(40))]),
    error=st.sampled_from([None, None, "timed out"]),
)
CHUNKS = {(): (), (0.1,): (1,), (0.1, 0.4, 0.4): (1, 3, 1)}
streamed = st.builds(
    lambda one, times: replace(one, chunk_times_s=times, chunk_tokens=CHUNKS[times]),
    rows,
    st.sampled_from(list(CHUNKS)),
)
cells = st.builds(
    cell,
    st.lists(streamed, max_size=4),
    concurrency=st.just(2),
    duration_s=st.sampled_from([0.0, 2.0]),
    server_accept_length=st.sampled_from([None, 2.5]),
    counted_tokens=st.sampled_from([None, 0, 100]),
    counted_verify_steps=st.sampled_from([None, 0, 40]),
)


@settings(max_examples=100, deadline=None)
@given(observed=cells, triple=st.sampled_from([None, TRIPLE, ONE_STEP]))
def test_every_null_has_its_reason_and_no_number_has_one(observed: CellObservation, triple: Triple | None) -> None:
    found = cell_json(summarise_cell(observed, triple), triple)
    null = {name for name, value in found.items() if value is None} - NO_MEASUREMENT
    assert null == set(found["missing"]), found
    assert all(reason.strip() for reason in found["missing"].values())
    assert cell_text(summarise_cell(observed, triple), triple)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"counted_reason": "the server was started without --enable-metrics"}, "counted_accept_length", "--enable-m"),
        ({"counted_tokens": 40, "counted_verify_steps": 0}, "counted_accept_length", "saw no verify step"),
        ({"server_accept_length_reason": "fewer than one log interval"}, "server_accept_length", "one log interval"),
    ],
)
def test_a_cross_check_that_is_not_there_says_why(changes: dict[str, object], name: str, reason: str) -> None:
    found = summarise_cell(cell([BASE_ROW], **changes), TRIPLE)
    assert reason in dict(found.missing)[name]


def arrivals(*tokens: int) -> RequestRow:
    """Chunks 20 ms apart, the last one 80 ms after the one before it."""
    times = [0.1 + 0.02 * i for i in range(len(tokens))]
    times[-1] += 0.06
    return row(chunk_times_s=tuple(times), chunk_tokens=tokens, completion_tokens=sum(tokens), finished_s=times[-1])


def test_a_time_between_chunks_is_said_to_be_one() -> None:
    several = summarise_cell(cell([arrivals(1, 3, 1, 2, 4)]), TRIPLE)
    assert several.itl_ms_p50 == pytest.approx(20.0)
    assert several.itl_ms_p99 == pytest.approx(80.0, rel=0.05)
    assert several.tokens_per_chunk == 2.5
    assert several.itl_is_per_chunk is True
    assert "20.0, 78.2 ms between chunks of 2.5 tokens" in cell_text(several, TRIPLE)
    # per token there is another number, from token counts
    assert several.tpot_ms_p50 == pytest.approx((0.1 + 0.02 * 4 + 0.06 - 0.1) / 10 * 1e3)
    single = summarise_cell(cell([arrivals(1, 1, 1)]), TRIPLE)
    assert (single.tokens_per_chunk, single.itl_is_per_chunk) == (1.0, False)
    assert "between chunks" not in cell_text(single, TRIPLE)


def test_a_gap_between_two_requests_is_no_time_between_tokens() -> None:
    found = summarise_cell(cell(closed_loop([1.0, 1.0], 1, tokens=11)), None)
    assert found.itl_ms_p99 == pytest.approx(99.0)
