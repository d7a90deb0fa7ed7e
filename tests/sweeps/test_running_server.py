"""One real SGLang server, measured from outside: cells of each kind, `specsweep measure`, the endpoint engine."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from live_servers import greedy_workload, launched, running
from server_specs import baseline, real_spec, speculative
from tiny_models import TinyPair

from actors.engines.endpoint import Endpoint, RunningServer
from actors.engines.sglang_server import SglangServer
from actors.load.measurement import measure_cells, warm_up
from actors.load.prompts import builtin_prompts
from results.failures import Failure
from results.observations import CellObservation
from search_spaces.config import Triple
from sweeps.cli import main

pytestmark = pytest.mark.server

TOKENS = 24
TRIPLE = Triple(num_steps=3, eagle_topk=4, num_draft_tokens=8)
CONFIG = speculative(3, 4, 8)


@pytest.fixture(scope="module")
def server(tiny_pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SglangServer]:
    with running(real_spec(tiny_pair, tmp_path_factory.mktemp("server")), CONFIG) as engine:
        yield engine


def test_cells_are_measured_and_their_counters_hold(server: SglangServer) -> None:
    """Counters, cache, times and the server's own account agree."""
    chosen = builtin_prompts(6, 1, warmup_count=2)
    workload = greedy_workload(
        (), TOKENS, prompts=chosen.prompts, warmup=chosen.warmup, concurrency=(1, 3), request_rate=(20.0,), stream=True
    )
    assert warm_up(server.base_url, workload, failure_now=server.failure_now) is None
    cells, failure = measure_cells(server.base_url, workload, failure_now=server.failure_now)
    assert failure is None
    assert [(cell.concurrency, cell.request_rate) for cell in cells] == [(1, None), (3, None), (0, 20.0)]
    for cell in cells:
        check_cell(cell, TRIPLE)
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


def test_one_row_of_a_server_that_somebody_else_started(
    server: SglangServer, tiny_pair: TinyPair, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--prompts", "8", "--concurrency", "2", "--max-new-tokens", "24", "--ignore-eos", "--json"]
    assert main(["measure", server.base_url, *options]) == 0
    row = json.loads(capsys.readouterr().out)
    ours = RunningServer(Endpoint(url=server.base_url), model_path=str(tiny_pair.target))
    seen = launched(ours.apply(CONFIG))
    assert isinstance(ours.apply(baseline()), Failure)
    ours.close()
    assert server.failure_now() is None
    numbers = tuple(row["server"][name] for name in ("num_steps", "eagle_topk", "num_draft_tokens", "tp_size"))
    assert numbers == (3, 4, 8, 1)
    assert row["server"]["sglang_version"] == "0.5.23"
    assert (row["requests"], row["requests_failed"], row["completion_tokens"]) == (8, 0, 8 * 24)
    assert row["accept_length"]["value"] == pytest.approx(8 * 24 / row["verify_steps"])
    assert row["counted_accept_length"] == pytest.approx(row["accept_length"]["value"], abs=5e-4)
    assert 1 <= row["accept_length"]["value"] <= row["ceiling"] == 4
    assert sum(row["histogram"]) == row["verify_steps"]
    assert row["output_throughput"]["value"] > 0
    assert row["ttft_ms_p50"] > 0
    assert "--speculative-num-steps" in seen.command
    assert not seen.weights_loaded
