"""One cell of each kind on a real SGLang server: counters, cache, times and the server's own account agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_servers import greedy_workload, running
from server_specs import real_spec, speculative
from tiny_models import TinyPair

from actors.load.measurement import measure_cells, warm_up
from actors.load.prompts import builtin_prompts
from results.observations import CellObservation
from search_spaces.config import Triple

pytestmark = pytest.mark.server

TOKENS = 24


def test_a_real_server_is_measured_and_its_counters_hold(tiny_pair: TinyPair, tmp_path: Path) -> None:
    chosen = builtin_prompts(6, 1, warmup_count=2)
    workload = greedy_workload(
        (), TOKENS, prompts=chosen.prompts, warmup=chosen.warmup, concurrency=(1, 3), request_rate=(20.0,), stream=True
    )
    triple = Triple(num_steps=3, eagle_topk=4, num_draft_tokens=8)
    with running(real_spec(tiny_pair, tmp_path), speculative(3, 4, 8)) as engine:
        assert warm_up(engine.base_url, workload, failure_now=engine.failure_now) is None
        cells, failure = measure_cells(engine.base_url, workload, failure_now=engine.failure_now)
    assert failure is None
    assert [(cell.concurrency, cell.request_rate) for cell in cells] == [(1, None), (3, None), (0, 20.0)]
    for cell in cells:
        check_cell(cell, triple)
    outputs = [[row.output_ids for row in cell.rows] for cell in cells]
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]


def check_cell(cell: CellObservation, triple: Triple) -> None:
    assert (cell.flush_verified, cell.flush_reason, cell.attempt_failures) == (True, None, ())
    assert [row.error for row in cell.rows] == [None] * 6
    assert cell.rows[0].cached_tokens == 0
    for row in cell.rows:
        assert row.histogram is not None
        assert row.verify_steps is not None
        assert sum(row.histogram) == row.verify_steps
        assert sum(drafts * steps for drafts, steps in enumerate(row.histogram)) == row.correct_drafts
        assert row.proposed_drafts == row.verify_steps * (triple.num_draft_tokens - 1)
        assert (row.completion_tokens, len(row.output_ids), row.finish_reason) == (TOKENS, TOKENS, "length")
        assert sum(row.chunk_tokens) == TOKENS
        # the prefill's token and those of every verify step; the last step may commit more than the limit lets out
        assert row.correct_drafts is not None
        assert 1 + row.correct_drafts + row.verify_steps - triple.num_steps <= TOKENS
        assert 1 + row.correct_drafts + row.verify_steps >= TOKENS
        assert row.first_token_s is not None
        assert row.sent_s < row.first_token_s < row.finished_s <= cell.duration_s
    assert cell.counted_tokens == 6 * TOKENS
    assert cell.counted_verify_steps == sum(row.verify_steps or 0 for row in cell.rows)
    assert (cell.server_accept_length is None) == (cell.server_accept_length_reason is not None)
    if cell.server_accept_length is not None:
        assert 1 <= cell.server_accept_length <= triple.ceiling
