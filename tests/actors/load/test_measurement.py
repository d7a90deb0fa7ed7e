"""Cells measured against a server whose TTFT, step time, chunking, acceptance and faults are known."""

from __future__ import annotations

import statistics
import time

import pytest
from doubles.timed_answers import TimedPlan, output_ids, script_of
from doubles.timed_server import TimedServer
from load_builders import numbered_workload
from measured_servers import alive, measured, measured_on_time, tpot_ms, ttft_ms

from actors.load.arrivals import poisson_arrivals
from actors.load.measurement import measure_cell, measure_cells
from results.stopping import Rival
from results.summary import Estimate
from search_spaces.config import Triple


def test_known_times_are_recovered_without_speculation() -> None:
    workload = numbered_workload(12)
    cell = measured_on_time(TimedPlan(ttft_s=0.06, step_s=0.010), workload)
    assert [row.prompt_id for row in cell.rows] == [prompt.prompt_id for prompt in workload.prompts]
    assert min(map(ttft_ms, cell.rows)) >= 59
    assert statistics.median(map(tpot_ms, cell.rows)) >= 9
    assert cell.duration_s >= 3 * (0.06 + 23 * 0.010) - 0.01  # three rounds of four
    assert cell.duration_s == max(row.finished_s for row in cell.rows)
    assert min(row.sent_s for row in cell.rows) == 0
    assert {row.chunk_tokens for row in cell.rows} == {(1,) * 24}
    assert {row.verify_steps for row in cell.rows} == {None}
    assert {row.histogram for row in cell.rows} == {None}
    assert (cell.concurrency, cell.request_rate, cell.workload_id) == (4, None, workload.workload_id)
    assert cell.counted_tokens == 12 * 24
    assert cell.counted_verify_steps == 0


def test_speculative_counters_and_chunks_of_several_tokens_are_kept_per_request() -> None:
    plan = TimedPlan(ttft_s=0.02, step_s=0.008, acceptance=(0.8, 0.6, 0.4), seed=3)
    workload = numbered_workload(8)
    cell = measured_on_time(plan, workload)
    for row, prompt in zip(cell.rows, workload.prompts, strict=True):
        script = script_of(plan, prompt.text, 24)
        assert row.chunk_tokens == script.commits
        assert row.verify_steps == len(script.accepted)
        assert row.correct_drafts == sum(script.accepted)
        assert row.proposed_drafts == 5 * len(script.accepted)
        assert row.histogram is not None
        assert sum(row.histogram) == row.verify_steps
        assert sum(drafts * steps for drafts, steps in enumerate(row.histogram)) == row.correct_drafts
        assert row.output_ids == tuple(output_ids(prompt.text, 24))
        assert (row.completion_tokens, row.prompt_tokens, row.finish_reason) == (24, len(prompt.text.split()), "length")
    assert cell.counted_verify_steps == sum(row.verify_steps or 0 for row in cell.rows)
    assert cell.counted_tokens == 8 * 24


@pytest.mark.parametrize("incremental", [False, True])
def test_both_ways_of_streaming_give_the_same_rows(incremental: bool) -> None:
    plan = TimedPlan(ttft_s=0.01, step_s=0.002, pattern=(2, 0, 3), incremental=incremental)
    workload = numbered_workload(3)
    with TimedServer(plan) as server:
        cell = measured(server, workload)
    assert [row.chunk_tokens for row in cell.rows] == [(1, 3, 1, 4, 3, 1, 4, 3, 1, 3)] * 3
    assert [row.output_ids for row in cell.rows] == [tuple(output_ids(p.text, 24)) for p in workload.prompts]


def test_without_streaming_there_is_no_first_token() -> None:
    workload = numbered_workload(4, stream=False)
    with TimedServer(TimedPlan(ttft_s=0.03, step_s=0.005, pattern=(3,))) as server:
        cell = measured(server, workload)
        spans = [server.seen.times_s[prompt.text] for prompt in workload.prompts]
    for row, (read_s, written_s) in zip(cell.rows, spans, strict=True):
        assert (row.first_token_s, row.chunk_times_s, row.completion_tokens, row.verify_steps) == (None, (), 24, 6)
        assert row.finished_s - row.sent_s >= written_s - read_s >= 0.03 + 6 * 0.005 - 0.02


def test_the_request_is_what_the_workload_says() -> None:
    with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0)) as server:
        measured(server, numbered_workload(1, temperature=0.7, max_new_tokens=3, ignore_eos=False), 1)
        assert server.seen.requests == [
            {
                "text": "prompt 0 wörds",
                "sampling_params": {"temperature": 0.7, "max_new_tokens": 3, "ignore_eos": False},
                "stream": True,
            }
        ]


def test_open_loop_sends_at_poisson_times_whatever_is_unanswered() -> None:
    workload = numbered_workload(40, max_new_tokens=4, arrival_seed=11)
    with TimedServer(TimedPlan(ttft_s=0.15, step_s=0.002)) as server:
        cell = measured(server, workload, 0, request_rate=80.0)
        assert server.seen.most_running > 5
    sent = [row.sent_s for row in cell.rows]
    lags_s = [at - due for at, due in zip(sent, poisson_arrivals(40, 80.0, seed=11), strict=True)]
    assert sent[0] == 0
    assert min(lags_s) > -0.002
    # late by as much as the client itself noticed that it was kept waiting, and no later
    assert 0 <= statistics.median(lags_s) < 0.02 + cell.client_lag_s
    assert (cell.request_rate, cell.concurrency) == (80.0, 0)


def test_all_cells_of_a_workload_in_order() -> None:
    workload = numbered_workload(4, concurrency=(1, 4), request_rate=(200.0,), max_new_tokens=2)
    with TimedServer(TimedPlan(ttft_s=0.001, step_s=0.001)) as server:
        cells, failure = measure_cells(server.url, workload, failure_now=alive)
    assert failure is None
    assert [(cell.concurrency, cell.request_rate) for cell in cells] == [(1, None), (4, None), (0, 200.0)]


def test_a_wrong_kind_of_load_is_a_bug_of_the_caller() -> None:
    for concurrency, rate in ((0, None), (4, 2.0)):
        with pytest.raises(ValueError, match="with request_rate"):
            measure_cell("http://127.0.0.1:1", numbered_workload(1), concurrency, failure_now=alive, request_rate=rate)


class TestEarlyStop:
    EVEN = TimedPlan(ttft_s=0.004, step_s=0.002, pattern=(2, 0, 3))
    TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)

    def test_even_requests_end_the_cell_early_and_its_rows_are_the_first_prompts(self) -> None:
        workload = numbered_workload(200, half_width=0.5, min_prompts=12)
        with TimedServer(self.EVEN) as server:
            cell = measured(server, workload, triple=self.TRIPLE)
            assert len(server.seen.requests) == len(cell.rows)
        assert 12 <= len(cell.rows) < 150
        assert [row.prompt_id for row in cell.rows] == [p.prompt_id for p in workload.prompts[: len(cell.rows)]]
        assert all(row.error is None and row.completion_tokens == 24 for row in cell.rows)
        assert (cell.stopped or "").startswith("narrow enough after ")
        assert cell.prompts == 200

    def test_without_a_half_width_every_prompt_is_sent(self) -> None:
        with TimedServer(self.EVEN) as server:
            cell = measured(server, numbered_workload(40), triple=self.TRIPLE)
        assert (len(cell.rows), cell.stopped) == (40, None)

    def test_what_is_clearly_slower_is_given_up_at_that_concurrency_only(self) -> None:
        workload = numbered_workload(60, half_width=0.0001, concurrency=(2, 4))
        rival = Rival(concurrency=4, throughput=Estimate(value=2e6, low=1e6, high=3e6, count=60), noise=0.05)
        with TimedServer(self.EVEN) as server:
            cells, failure = measure_cells(server.url, workload, failure_now=alive, triple=self.TRIPLE, rival=rival)
        assert failure is None
        assert [len(cell.rows) == 60 for cell in cells] == [True, False]
        assert "dominated" in (cells[1].stopped or "")
        assert len(cells[1].rows) < 40

    def test_an_open_loop_sends_every_prompt(self) -> None:
        workload = numbered_workload(40, half_width=0.9, max_new_tokens=2)
        with TimedServer(self.EVEN) as server:
            cell = measured(server, workload, 0, request_rate=400.0)
        assert (len(cell.rows), cell.stopped) == (40, None)


class TestCache:
    def test_every_cell_starts_with_an_empty_cache(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.002, step_s=0.0)) as server:
            first, second = (measured(server, numbered_workload(4)) for _ in range(2))
        for cell in (first, second):
            assert (cell.flush_verified, cell.flush_reason) == (True, None)
            assert [row.cached_tokens for row in cell.rows] == [0] * 4

    def test_a_refused_flush_is_tried_again(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, flush_refusals=3)) as server:
            assert measured(server, numbered_workload(2)).flush_verified
            assert server.seen.flushes == 4

    def test_a_cache_that_cannot_be_flushed_is_said_and_its_hits_are_kept(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, flush_status=404, average_accept_length=2.8)) as server:
            measured(server, numbered_workload(4))
            cell = measured(server, numbered_workload(4))
        assert not cell.flush_verified
        assert cell.flush_reason == "the server refused to flush (HTTP 404): no"
        assert [row.cached_tokens for row in cell.rows] == [row.prompt_tokens - 1 for row in cell.rows]
        assert cell.server_accept_length is None
        assert "covers earlier requests" in (cell.server_accept_length_reason or "")

    def test_somebody_elses_requests_are_not_idle(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, foreign_requests=2)) as server:
            started = time.monotonic()
            cell = measured(server, numbered_workload(1), 1, flush_timeout_s=0.5)
            assert time.monotonic() - started < 3
        assert not cell.flush_verified
        assert cell.flush_reason == "the server has 2 requests of somebody else"

    def test_an_older_server_without_loads_is_flushed_all_the_same(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, loads=False)) as server:
            assert measured(server, numbered_workload(1), 1).flush_verified


class TestCrossChecks:
    def test_the_servers_average_is_kept_beside_the_requests_own_counters(self) -> None:
        plan = TimedPlan(ttft_s=0.0, step_s=0.0, pattern=(1,), average_accept_length=2.8)
        with TimedServer(plan) as server:
            cell = measured(server, numbered_workload(4, max_new_tokens=25))
        assert cell.server_accept_length == 2.8
        steps = sum(row.verify_steps or 0 for row in cell.rows)
        assert sum(row.completion_tokens for row in cell.rows) / steps == pytest.approx(25 / 12)

    def test_a_missing_average_has_a_reason_and_is_no_failure(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, pattern=(1,))) as server:
            cell = measured(server, numbered_workload(1), 1)
        assert cell.server_accept_length is None
        assert (cell.server_accept_length_reason or "").startswith("fewer than one log interval")

    def test_without_metrics_the_counters_are_missing_with_a_reason(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, metrics=False)) as server:
            cell = measured(server, numbered_workload(1), 1)
        assert (cell.counted_tokens, cell.counted_verify_steps) == (None, None)
        assert cell.counted_reason == "the server was started without --enable-metrics"
