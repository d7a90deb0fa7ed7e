"""Cell summaries: right numbers, reasons for missing ones, and objections that keep a cell out of the ranking."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_builders import VARIED_IDS, cell, closed_loop, config, record, row, spec_row

from results.cell_acceptance import acceptance_pairs
from results.cell_row import cell_text
from results.cells import summarise_cell, throughput_pairs
from results.mlflow_fields import run_fields
from results.observations import RequestRow
from results.record_json import decode_record, encode_record
from results.summary import Estimate
from results.throughput import mean_in_flight, output_throughput
from search_spaces.config import Triple

CHAIN_5 = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
CHAIN_3 = Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4)


def test_one_published_request() -> None:
    summary = summarise_cell(cell([row()]), CHAIN_5)
    assert summary.accept_length is not None
    assert summary.accept_length.value == pytest.approx(106 / 43)
    assert summary.draft_accept_length == pytest.approx(1 + 63 / 43)
    assert summary.p1 == pytest.approx(32 / 43)
    assert summary.histogram == (11, 14, 11, 4, 0, 3)
    assert summary.verify_steps == 43
    assert summary.output_throughput is not None
    assert summary.output_throughput.value == pytest.approx(106 / 1.1)
    assert summary.ttft_ms_p50 == pytest.approx(100.0)
    assert summary.tpot_ms_p50 == pytest.approx(1000 / 105)
    assert summary.not_ranked == ()


def test_percentiles_and_the_steady_throughput_have_intervals_where_the_requests_suffice() -> None:
    latencies = np.random.default_rng(0).normal(1.0, 0.2, 64).clip(0.3)
    summary = summarise_cell(cell(closed_loop(latencies.tolist(), 4)), None)
    percentiles = {"tpot_ms_p50", "ttft_ms_p50", "e2e_ms_p50"}
    assert {name for name, _, _ in summary.intervals} == {"steady_throughput", *percentiles}
    low, high = summary.interval("e2e_ms_p50") or (0, 0)
    assert low <= float(np.median(latencies)) * 1e3 <= high
    assert summary.steady_throughput == pytest.approx(400, rel=0.03)
    low, high = summary.interval("steady_throughput") or (0, 0)
    # 1.96 x 20 % / sqrt(64), a little more for what the window leaves out
    assert (high - low) / 2 / summary.steady_throughput == pytest.approx(0.05, rel=0.25)
    assert low < summary.steady_throughput < high
    low, high = summary.interval("tpot_ms_p50") or (0, 0)
    assert low <= float(np.median((latencies - 0.01) / 99 * 1000)) <= high
    assert summary.interval("tpot_ms_p99") is None
    assert summarise_cell(cell([row()]), CHAIN_5).intervals == ()


def test_the_whole_latency_is_what_a_user_waited() -> None:
    """Streamed or not; failed attempts and the pauses after them included."""
    rows = [row(prompt_id=f"p{i}", sent_s=float(i), finished_s=i + 1.5, first_sent_s=float(i)) for i in range(4)]
    rows.append(row(prompt_id="p4", sent_s=4.0, finished_s=5.5, first_sent_s=2.0, attempts=3, first_token_s=None))
    found = summarise_cell(cell(rows), None)
    assert (found.e2e_ms_p50, found.e2e_ms_p99) == (pytest.approx(1500), pytest.approx(3420))
    logged = run_fields(record("t1", config(), cells=[found]), {}).metrics
    assert logged["e2e_ms_p50_c1"] == logged["e2e_ms_p50"] == pytest.approx(1500)
    assert f"{'E2E p50, p99':<22}1500.0, 3420.0 ms\n" in cell_text(found, None)
    older = summarise_cell(cell([replace(one, first_sent_s=None) for one in rows]), None)
    assert (older.e2e_ms_p50, older.e2e_ms_p99) == (None, None)
    assert "first sent was not kept" in dict(older.missing)["e2e_ms_p99"]
    assert summarise_cell(cell([replace(one, first_sent_s=None) for one in rows[:4]]), None).e2e_ms_p99 is not None


def test_a_record_from_before_there_was_a_whole_latency_is_read() -> None:
    new = record("t1", config(), cells=[summarise_cell(cell([row()]), None)])
    content = json.loads(encode_record(new))
    for name in ("e2e_ms_p50", "e2e_ms_p99"):
        assert content["cells"][0].pop(name) is not None
    old = decode_record(json.dumps(content).encode(), name="record.json")
    assert old.cells[0] == replace(new.cells[0], e2e_ms_p50=None, e2e_ms_p99=None)


def test_accept_length_is_weighted_by_tokens_not_by_requests() -> None:
    rows = [spec_row("long", (10, 0, 0, 90), 4), spec_row("short", (10, 0, 0, 0), 4)]
    summary = summarise_cell(cell(rows), CHAIN_3)
    assert summary.accept_length is not None
    assert summary.accept_length.value == pytest.approx((100 + 270 + 10) / 110)


def test_the_server_average_of_an_older_workload_is_not_this_cells_accept_length() -> None:
    # 4,000 verify steps at 3.00 before, 1,000 at 2.00 in this cell, no flush: the server now says 2.80.
    rows = [spec_row(f"p{i}", (40, 20, 40, 0), 4) for i in range(10)]
    summary = summarise_cell(cell(rows, server_accept_length=2.80), CHAIN_3)
    assert summary.verify_steps == 1000
    assert summary.accept_length is not None
    assert summary.accept_length.value == pytest.approx(2.00)
    assert summary.server_accept_length == 2.80
    assert any("2.80 differs from 2.00" in warning for warning in summary.warnings)


def test_a_missing_server_average_is_null_with_its_reason_and_fails_nothing() -> None:
    reason = "fewer than one log interval"
    summary = summarise_cell(cell([row()], server_accept_length_reason=reason), CHAIN_5)
    assert summary.server_accept_length is None
    assert dict(summary.missing)["server_accept_length"] == reason
    assert summary.accept_length is not None
    assert summary.not_ranked == ()


def test_inconsistent_requests_are_left_out_with_their_reason() -> None:
    rows = [spec_row(f"p{i}", (5, 5), 6) for i in range(30)]
    rows[3] = replace(rows[3], correct_drafts=6)
    summary = summarise_cell(cell(rows), CHAIN_5)
    assert summary.rows_rejected == 1
    assert summary.verify_steps == 290
    assert any("1 of 30 requests have inconsistent counters" in warning for warning in summary.warnings)
    assert summary.not_ranked == ()


def test_a_cell_of_inconsistent_requests_has_no_accept_length() -> None:
    summary = summarise_cell(cell([row(correct_drafts=64)]), CHAIN_5)
    assert summary.accept_length is None
    assert "accepts 63 drafts, the server 64" in dict(summary.missing)["accept_length"]
    assert len(summary.not_ranked) == 1


def test_a_baseline_has_no_acceptance_and_is_ranked() -> None:
    summary = summarise_cell(cell(closed_loop([1.0] * 8, 2), concurrency=2), None)
    assert summary.accept_length is None
    assert summary.p1 is None
    assert dict(summary.missing)["accept_length"] == "no speculation"
    assert summary.not_ranked == ()


def test_a_speculative_server_without_counters_is_null_with_a_reason() -> None:
    summary = summarise_cell(cell(closed_loop([1.0] * 8, 2), concurrency=2), CHAIN_3)
    assert summary.accept_length is None
    assert "no speculative counters" in dict(summary.missing)["accept_length"]


def test_one_step_without_histogram_still_gives_p1() -> None:
    one = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)
    rows = [replace(spec_row("p0", (26, 74), 2), histogram=None)]
    summary = summarise_cell(cell(rows), one)
    assert summary.p1 == pytest.approx(0.74)
    assert summary.accept_length is not None
    assert summary.accept_length.value == pytest.approx(1.74)


def warm(rows: list[RequestRow], share: float) -> list[RequestRow]:
    return [replace(one, cached_tokens=int(one.prompt_tokens * share)) for one in rows]


def test_a_warm_rerun_is_marked_and_not_ranked() -> None:
    cold = closed_loop([1.0] * 8, 2)
    first = summarise_cell(cell(cold, concurrency=2), None)
    again = summarise_cell(cell(warm(cold, 0.9), concurrency=2, flush_verified=False), None)
    claimed = summarise_cell(cell(warm(cold, 0.9), concurrency=2, flush_verified=True), None)
    assert first.not_ranked == ()
    for summary in (again, claimed):
        assert summary.cached_token_share == pytest.approx(0.9)
        assert summary.not_ranked == ("warm cache: 90% of the prompt tokens were cached before this cell began",)


def test_a_shared_prefix_within_a_flushed_cell_is_not_a_warm_cache() -> None:
    rows = warm(closed_loop([1.0] * 8, 2), 0.5)
    rows[0] = replace(rows[0], cached_tokens=0)
    shared = summarise_cell(cell(rows, concurrency=2, shared_prefix_share=0.45), None)
    unexplained = summarise_cell(cell(rows, concurrency=2, shared_prefix_share=0.0), None)
    assert shared.not_ranked == ()
    assert "share prefixes: 44%" in shared.warnings[0]
    assert "warm cache: 44%" in unexplained.not_ranked[0]


def test_a_start_marker_cached_for_every_short_prompt_is_no_warm_cache() -> None:
    rows = [replace(one, prompt_tokens=8, cached_tokens=1) for one in closed_loop([1.0] * 8, 2)]
    rows[0] = replace(rows[0], cached_tokens=0)
    assert summarise_cell(cell(rows, concurrency=2), None).not_ranked == ()


def test_unknown_cache_state_is_not_ranked_unless_the_flush_is_verified() -> None:
    rows = [replace(one, cached_tokens=None) for one in closed_loop([1.0] * 8, 2)]
    unknown = summarise_cell(cell(rows, concurrency=2, flush_verified=False, flush_reason="busy for 30 s"), None)
    flushed = summarise_cell(cell(rows, concurrency=2, flush_verified=True), None)
    assert "cache state unknown: the flush is not verified (busy for 30 s)" in unknown.not_ranked[0]
    assert flushed.not_ranked == ()
    assert flushed.cached_token_share is None
    assert dict(flushed.missing)["cached_token_share"] == "the server counts no cached tokens"


def test_looping_output_is_flagged_and_not_ranked() -> None:
    looped = tuple([7, 9] * 250)
    rows = [
        row(prompt_id=f"p{i}", output_ids=looped, completion_tokens=500, verify_steps=127, histogram=None)
        for i in range(4)
    ]
    rows = [replace(one, correct_drafts=373, proposed_drafts=381) for one in rows]
    summary = summarise_cell(cell(rows), CHAIN_3)
    assert summary.accept_length is not None
    assert summary.accept_length.value == pytest.approx(3.93, abs=0.01)
    assert summary.degenerate_share == 1.0
    assert summary.distinct_bigram_share == pytest.approx(4 / 499)
    assert "degenerate output: 4 of 4 outputs" in summary.not_ranked[0]
    assert "2 distinct tokens" in summary.not_ranked[0]


def test_more_clients_than_the_server_takes_is_said() -> None:
    rows = closed_loop([1.0] * 128, 64)
    capped = summarise_cell(cell(rows, concurrency=64), None, server_args={"max_running_requests": 48})
    free = summarise_cell(cell(rows, concurrency=64), None, server_args={"max_running_requests": 4096})
    assert any("at most 48 requests at once" in warning and "16 of 64" in warning for warning in capped.warnings)
    assert free.warnings == ()


def test_decoding_without_graphs_is_said_on_cuda_only() -> None:
    rows = closed_loop([1.0] * 16, 8)
    args = {"device": "cuda", "disable_cuda_graph": True}
    on_cuda = summarise_cell(cell(rows, concurrency=8), None, server_args=args)
    small = summarise_cell(cell(rows, concurrency=8), None, server_args={"device": "cuda", "cuda_graph_max_bs": 4})
    on_cpu = summarise_cell(cell(rows, concurrency=8), None, server_args={**args, "device": "cpu"})
    assert "without CUDA graphs" in on_cuda.warnings[0]
    assert "8 requests at once" in small.warnings[0]
    assert "batches up to 4" in small.warnings[0]
    assert on_cpu.warnings == ()


@pytest.mark.parametrize(("failures", "ranked"), [(1, True), (5, False)])
def test_failed_requests_are_counted_and_too_many_disqualify(failures: int, ranked: bool) -> None:
    rows = closed_loop([1.0] * 40, 2)
    for i in range(failures):
        rows[i] = replace(rows[i], error="timed out after 30 s", completion_tokens=3, attempts=3)
    summary = summarise_cell(cell(rows, concurrency=2), None)
    assert summary.requests == 40
    assert summary.requests_failed == failures
    assert summary.retries == 2 * failures
    assert summary.completion_tokens == 100 * (40 - failures)
    assert (summary.not_ranked == ()) is ranked
    sentences = summary.warnings if ranked else summary.not_ranked
    assert f"{failures} of 40 requests failed (first: timed out after 30 s)" in sentences


def test_nothing_measured_is_a_summary_with_reasons_not_an_error() -> None:
    for rows in ([], [row(error="connection refused", completion_tokens=0, first_token_s=None)]):
        summary = summarise_cell(cell(rows), CHAIN_5)
        assert summary.accept_length is None
        assert summary.output_throughput is None
        assert summary.not_ranked != ()
        assert {"accept_length", "output_throughput", "steady_throughput"} <= dict(summary.missing).keys()


def test_a_cold_first_round_is_said() -> None:
    rows = closed_loop([1.0] * 12, 2)
    slow = [replace(one, first_token_s=one.sent_s + 0.5) if one.sent_s == 0 else one for one in rows]
    assert summarise_cell(cell(rows, concurrency=2), None).warnings == ()
    assert "cold start" in summarise_cell(cell(slow, concurrency=2), None).warnings[0]


def test_steady_throughput_leaves_out_ramp_up_and_drain() -> None:
    rng = np.random.default_rng(0)
    latencies = [*(rng.uniform(0.8, 1.2, 60)), 6.0]  # one straggler at the end: a long drain
    rows = closed_loop(latencies, 4, ttft_s=0.0)
    summary = summarise_cell(cell(rows, concurrency=4), None)
    assert summary.steady_throughput == pytest.approx(400, rel=0.06)
    assert summary.output_throughput is not None
    assert summary.output_throughput.value < 310


def test_too_few_requests_have_no_steady_window() -> None:
    summary = summarise_cell(cell(closed_loop([1.0] * 3, 4), concurrency=4), None)
    assert summary.steady_throughput is None
    assert "fewer than two rounds" in dict(summary.missing)["steady_throughput"]
    assert "cannot keep 4 in flight" in summary.warnings[0]


def test_throughput_intervals_cover_the_true_rate() -> None:
    rng = np.random.default_rng(9)
    truth = 4 * 100 / 1.0  # four slots, 100 tokens in a second on average
    covered, ratios = 0, []
    for _ in range(80):
        rows = closed_loop(rng.gamma(16, 1 / 16, 80), 4, tokens=100, chunk_times_s=(), chunk_tokens=())
        duration_s = max(one.finished_s for one in rows)
        estimate, in_flight = output_throughput(rows, duration_s, slots=4), mean_in_flight(rows, duration_s)
        assert isinstance(estimate, Estimate)
        assert estimate.value == pytest.approx(80 * 100 / duration_s)
        # the drain lowers the requests in flight
        covered += estimate.low <= truth * in_flight / 4 <= estimate.high
        ratios.append(estimate.relative_half_width)
    assert covered >= 0.9 * 80
    assert np.median(ratios) == pytest.approx(1.96 * 0.25 / np.sqrt(80), rel=0.2)


def test_long_prompts_accepted_much_worse_are_said() -> None:
    short = [spec_row(f"s{i}", (10, 20, 30, 40), 4, prompt_tokens=1000) for i in range(6)]
    long = [spec_row(f"l{i}", (90, 10, 0, 0), 4, prompt_tokens=4000) for i in range(6)]
    summary = summarise_cell(cell([*short, *long]), CHAIN_3)
    assert [stratum.accept_length for stratum in summary.context_strata] == pytest.approx([3.0, 2.05, 1.1])
    assert any("falls with prompt length: 3.00 up to 1000 tokens, 1.10 from 4000" in w for w in summary.warnings)


def test_prompts_of_one_length_have_no_strata() -> None:
    assert summarise_cell(cell([spec_row(f"s{i}", (1, 1), 4) for i in range(20)]), CHAIN_3).context_strata == ()


def test_pairs_sum_repeated_prompts_and_skip_failures() -> None:
    rows = [
        spec_row("a", (1, 1), 4, sent_s=0.0, finished_s=2.0),
        spec_row("a", (2, 0), 4, sent_s=1.0, finished_s=2.0),
        spec_row("b", (1, 1), 4, error="lost"),
    ]
    assert acceptance_pairs(rows) == {"a": (5.0, 4.0)}
    assert throughput_pairs(rows) == {"a": (5.0, 3.0)}


def test_outputs_of_natural_length_are_not_degenerate() -> None:
    rows = [row(prompt_id=f"p{i}", output_ids=VARIED_IDS[i : i + 106]) for i in range(5)]
    summary = summarise_cell(cell(rows), CHAIN_5)
    assert summary.degenerate_share == 0.0
    assert summary.distinct_bigram_share == pytest.approx(1.0, abs=0.01)


def test_the_servers_counters_over_the_cell_are_a_cross_check() -> None:
    agreeing = summarise_cell(cell([row()], counted_tokens=106, counted_verify_steps=43), CHAIN_5)
    disagreeing = summarise_cell(cell([row()], counted_tokens=206, counted_verify_steps=93), CHAIN_5)
    assert agreeing.counted_accept_length == pytest.approx(106 / 43)
    assert agreeing.warnings == ()
    assert disagreeing.accept_length == agreeing.accept_length
    assert "counters give accept length 2.215 over this cell, its requests 2.465" in disagreeing.warnings[0]


@settings(max_examples=60, deadline=None)
@given(count=st.integers(2, 40), tokens=st.integers(1, 512), duration_s=st.floats(0.1, 1000.0))
def test_the_throughput_of_an_open_loop_lies_in_its_interval(count: int, tokens: int, duration_s: float) -> None:
    """Also where every answer is as long as the others (`ignore_eos`) and the interval is a point."""
    rows = [row(prompt_id=f"p{i}", completion_tokens=tokens) for i in range(count)]
    estimate = output_throughput(rows, duration_s)
    assert isinstance(estimate, Estimate)
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.value == count * tokens / duration_s


def test_an_open_loop_is_summarised_by_its_rate() -> None:
    rng = np.random.default_rng(1)
    rows = [
        row(prompt_id=f"p{i}", sent_s=i / 2, first_token_s=i / 2 + 0.1, finished_s=i / 2 + 1, completion_tokens=int(n))
        for i, n in enumerate(rng.integers(80, 120, 40))
    ]
    rows = [replace(one, verify_steps=None, correct_drafts=None, histogram=None) for one in rows]
    summary = summarise_cell(cell(rows, concurrency=0, request_rate=2.0), None)
    estimate = summary.output_throughput
    assert summary.load_label == "2/s"
    assert estimate is not None
    assert estimate.value == pytest.approx(200, rel=0.05)
    assert estimate.low < estimate.value < estimate.high
    assert "open loop" in dict(summary.missing)["steady_throughput"]
    assert summary.warnings == ()


def test_a_late_client_is_said_and_why_a_cell_stopped_is_kept() -> None:
    rows = closed_loop([1.0] * 8, 2)
    late = summarise_cell(cell(rows, concurrency=2, client_lag_s=0.4, stopped="narrow enough"), None)
    prompt = summarise_cell(cell(rows, concurrency=2, client_lag_s=0.02), None)
    assert "the client was up to 0.40 s late" in late.warnings[0]
    assert late.stopped == "narrow enough"
    assert prompt.warnings == ()
    assert prompt.stopped is None


def test_a_cell_that_stopped_early_shows_the_throughput_of_the_whole_set() -> None:
    latencies = np.random.default_rng(2).gamma(6, 1 / 6, 160).tolist()
    plain = {"chunk_times_s": (), "chunk_tokens": ()}
    whole = summarise_cell(cell(closed_loop(latencies, 16, **plain), concurrency=16, prompts=160), None)
    rows = closed_loop(latencies[:48], 16, **plain)
    raw = summarise_cell(cell(rows, concurrency=16), None).output_throughput
    stopped = summarise_cell(cell(rows, concurrency=16, prompts=160, stopped="narrow enough"), None)
    assert (whole.output_throughput, raw, stopped.output_throughput) != (None, None, None)
    expected = (whole.output_throughput.value / raw.value) * (sum(latencies[:48]) / 48) / (sum(latencies) / 160)
    assert raw.value < 0.92 * whole.output_throughput.value
    assert stopped.output_throughput.value / raw.value == pytest.approx(expected, rel=0.06)
    assert stopped.output_throughput.low < stopped.output_throughput.value < stopped.output_throughput.high
    assert (stopped.requests, stopped.prompts) == (48, 160)


def test_without_idle_slots_stopping_early_changes_nothing() -> None:
    rows = closed_loop([1.0] * 32, 8)
    whole = summarise_cell(cell(rows, concurrency=8), None).output_throughput
    stopped = summarise_cell(cell(rows, concurrency=8, prompts=64, stopped="narrow enough"), None).output_throughput
    assert whole is not None
    assert stopped is not None
    assert stopped.value == pytest.approx(whole.value)
