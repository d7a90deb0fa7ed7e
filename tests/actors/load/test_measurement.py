"""Cells measured against a server whose TTFT, step time, chunking, acceptance and faults are known."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from doubles.timed_server import TimedPlan, TimedServer, output_ids, script_of
from load_builders import numbered_workload

from actors.load.arrivals import poisson_arrivals
from actors.load.measurement import measure_cell, measure_cells, warm_up
from actors.load.workload import Workload
from results.failures import Failure
from results.observations import CellObservation, RequestRow
from results.stopping import Rival
from results.summary import Estimate
from search_spaces.config import Triple
from search_spaces.errors import EnvironmentProblem


def alive() -> None:
    return None


def measured(server: TimedServer, workload: Workload, concurrency: int = 4, **kwargs: Any) -> CellObservation:
    cell = measure_cell(server.url, workload, concurrency, failure_now=alive, **kwargs)
    assert isinstance(cell, CellObservation), cell
    return cell


def failed(server: TimedServer, workload: Workload, failure_now: Callable[[], Failure | None] = alive) -> Failure:
    cell = measure_cell(server.url, workload, workload.concurrency[0], failure_now=failure_now)
    assert isinstance(cell, Failure), cell
    return cell


def ttft_ms(row: RequestRow) -> float:
    assert row.first_token_s is not None
    return (row.first_token_s - row.sent_s) * 1e3


def tpot_ms(row: RequestRow) -> float:
    assert row.first_token_s is not None
    return (row.finished_s - row.first_token_s) * 1e3 / (row.completion_tokens - 1)


def measured_on_time(plan: TimedPlan, workload: Workload) -> CellObservation:
    """A cell in which the client saw every event as soon as the server wrote it.

    Other work on the machine can only add to the way between them, so the best of three cells counts: a client that
    reads its clock late, or early, does so in all of them.
    """
    seen: list[tuple[float, float]] = []
    for _ in range(3):
        with TimedServer(plan) as server:
            cell = measured(server, workload)
            assert server.seen.most_running == 4
        first_ms, ways_ms = [], []
        for row, prompt in zip(cell.rows, workload.prompts, strict=True):
            read_s, *written_s = server.seen.times_s[prompt.text]
            assert row.chunk_times_s[-1] == row.finished_s
            first_ms.append(ttft_ms(row) - (written_s[0] - read_s) * 1e3)
            ways_ms += [(at - written) * 1e3 for at, written in zip(row.chunk_times_s, written_s, strict=True)]
        assert min(first_ms) >= 0
        # the client's clock begins with its first request, so its ways are known but for one constant
        seen.append((statistics.median(first_ms), statistics.median(ways_ms) - min(ways_ms)))
        if seen[-1][0] < 10 and seen[-1][1] < 2:
            return cell
    raise AssertionError(f"median milliseconds to the first token and for every event beyond the server's own: {seen}")


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
        assert cell.flush_reason == "flush_cache: HTTP 404: no"
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


class TestFaults:
    def test_a_retried_request_is_timed_by_its_successful_attempt_and_counted(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.02, step_s=0.002, fail_first=(500,))) as server:
            cell = measured(server, numbered_workload(3, max_attempts=2), 1)
        assert [row.attempts for row in cell.rows] == [2, 1, 1]
        assert [row.error for row in cell.rows] == [None] * 3
        assert cell.attempt_failures == (("refused", 1),)
        assert cell.rows[0].sent_s >= 0.2  # the first attempt and the pause are not in its latency
        assert 20 <= ttft_ms(cell.rows[0]) < 200 + cell.client_lag_s * 1e3

    @pytest.mark.parametrize(
        ("fault", "attempts", "reason", "error"),
        [
            (500, 2, "refused", "HTTP 500: "),
            (429, 2, "refused", "HTTP 429: "),
            (400, 1, "refused", "HTTP 400: "),
            ("hang", 2, "timeout", "no complete answer within 0.5 s"),
            ("drop", 2, "connection", "connection: "),
            ("cut", 2, "broken", "the stream ended in the middle"),
            ("garbage", 2, "broken", "unreadable answer: an event is not JSON"),
            ("abort", 2, "refused", "aborted by the server: out of room"),
            ("stream_error", 2, "refused", "error in the stream: no room"),
            ("nan", 1, "broken", "the server stopped at NaN logits"),
        ],
    )
    def test_every_fault_is_counted_and_said(self, fault: int | str, attempts: int, reason: str, error: str) -> None:
        workload = numbered_workload(3, max_attempts=2, request_timeout_s=0.5, max_new_tokens=6)
        plan = TimedPlan(ttft_s=0.002, step_s=0.002, fail_first=(fault,) * attempts)
        with TimedServer(plan) as server:
            cell = measured(server, workload, 1)
        row = cell.rows[0]
        assert row.error is not None
        assert row.error.startswith(error)
        assert "\n" not in row.error
        assert row.attempts == attempts
        assert cell.attempt_failures == ((reason, attempts),)
        assert [other.error for other in cell.rows[1:]] == [None, None]
        assert (row.verify_steps, row.output_ids, row.finish_reason) == (None, (), None)

    def test_a_broken_stream_keeps_what_had_arrived(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.002, step_s=0.002, fail_first=("cut",))) as server:
            row = measured(server, numbered_workload(2), 1).rows[0]
        assert (row.completion_tokens, row.chunk_tokens) == (1, (1,))

    def test_when_every_request_fails_the_cell_fails(self) -> None:
        with TimedServer(TimedPlan(fail_all=500)) as server:
            failure = failed(server, numbered_workload(2))
        assert (failure.phase, failure.kind) == ("measure", "client")
        assert failure.message.startswith("2 requests in a row failed, the last with: HTTP 500")

    def test_a_server_that_hangs_is_given_up_after_one_round(self) -> None:
        workload = numbered_workload(40, request_timeout_s=0.4)
        started = time.monotonic()
        with TimedServer(TimedPlan(fail_all="hang")) as server:
            failure = failed(server, workload)
            assert len(server.seen.requests) <= 8
        assert (failure.phase, failure.kind) == ("measure", "timeout")
        assert time.monotonic() - started < 3


class TestDeath:
    def test_death_while_measuring_is_the_cells_failure_at_once(self) -> None:
        cause = Failure(phase="ready", kind="crash", message="killed by signal 9", log_tail="the end")
        server = TimedServer(TimedPlan(ttft_s=30.0))
        with server:
            threading.Timer(0.5, server.kill).start()
            started = time.monotonic()
            failure = failed(
                server,
                numbered_workload(40, request_timeout_s=60.0, max_attempts=3),
                lambda: cause if server.dead.is_set() else None,
            )
        assert (failure.phase, failure.kind, failure.log_tail) == ("measure", "crash", "the end")
        assert time.monotonic() - started < 2.5

    def test_a_server_that_dies_while_it_is_waited_for_is_not_waited_for(self) -> None:
        cause = Failure(phase="ready", kind="crash", message="killed by signal 9")
        with TimedServer(TimedPlan(foreign_requests=1)) as server:
            due_s = time.monotonic() + 0.3
            failure = failed(server, numbered_workload(4), lambda: cause if time.monotonic() > due_s else None)
            assert server.seen.requests == []
        assert (failure.phase, failure.kind) == ("measure", "crash")
        assert time.monotonic() - due_s < 5

    def test_a_death_that_the_guard_sees_late_still_names_the_cause(self) -> None:
        cause = Failure(phase="ready", kind="oom", message="out of memory")
        with TimedServer(TimedPlan(ttft_s=0.01, step_s=0.001, die_after_requests=3)) as server:
            died: list[float] = []

            def seen_late() -> Failure | None:
                if server.dead.is_set():
                    died.append(time.monotonic())
                return cause if died and time.monotonic() - died[0] > 1.0 else None

            failure = failed(server, numbered_workload(8), seen_late)
        assert (failure.phase, failure.kind) == ("measure", "oom")

    def test_silence_without_a_cause_is_a_failure_too(self) -> None:
        with TimedServer(TimedPlan()) as server:
            server.kill()
            started = time.monotonic()
            failure = failed(server, numbered_workload(5))
            assert time.monotonic() - started < 6
        assert (failure.phase, failure.kind) == ("measure", "client")
        assert "connection" in failure.message


class TestWarmUp:
    def test_only_held_out_prompts_are_sent_and_every_slot_is_filled(self) -> None:
        workload = numbered_workload(6, warmup_count=2, concurrency=(1, 5), max_new_tokens=100)
        with TimedServer(TimedPlan(ttft_s=0.02, step_s=0.0)) as server:
            assert warm_up(server.url, workload) is None
            assert server.seen.most_running == 5
            requests = server.seen.requests
        assert {request["text"] for request in requests} == {"warm 0", "warm 1"}
        assert {request["sampling_params"]["max_new_tokens"] for request in requests} == {32}  # type: ignore[index]

    def test_warm_up_is_not_in_the_cells_window(self) -> None:
        workload = numbered_workload(4, warmup_count=3)
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, pattern=(2,))) as server:
            assert warm_up(server.url, workload) is None
            cell = measured(server, workload)
        assert cell.counted_tokens == 4 * 24
        assert cell.counted_verify_steps == sum(row.verify_steps or 0 for row in cell.rows)

    def test_a_server_that_answers_nothing_fails_the_warm_up(self) -> None:
        with TimedServer(TimedPlan(fail_all=500)) as server:
            failure = warm_up(server.url, numbered_workload(1, warmup_count=2))
        assert failure is not None
        assert (failure.phase, failure.kind) == ("warmup", "client")

    def test_death_in_the_warm_up_has_its_cause(self) -> None:
        cause = Failure(phase="ready", kind="crash", message="selected index k out of range")
        with TimedServer(TimedPlan(die_after_requests=0)) as server:
            failure = warm_up(
                server.url,
                numbered_workload(1, warmup_count=1),
                failure_now=lambda: cause if server.dead.is_set() else None,
            )
        assert failure is not None
        assert (failure.phase, failure.message) == ("warmup", "selected index k out of range")

    def test_nothing_to_warm_up_with(self) -> None:
        assert warm_up("http://127.0.0.1:1", numbered_workload(1)) is None


class TestApiKey:
    def test_it_comes_from_the_environment_and_appears_nowhere(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("SPECSWEEP_TEST_KEY", "s3cret")
        workload = numbered_workload(2, api_key_env="SPECSWEEP_TEST_KEY")
        caplog.set_level("DEBUG")
        with TimedServer(TimedPlan(ttft_s=0.0, step_s=0.0, api_key="s3cret")) as server:
            cell = measured(server, workload)
            monkeypatch.setenv("SPECSWEEP_TEST_KEY", "wr0ng")
            failure = failed(server, workload)
        assert cell.flush_verified
        assert "HTTP 401" in failure.message
        for text in (repr(cell), repr(failure), repr(workload), caplog.text):
            assert "s3cret" not in text
            assert "wr0ng" not in text

    def test_a_missing_one_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPECSWEEP_TEST_KEY", raising=False)
        workload = numbered_workload(1, api_key_env="SPECSWEEP_TEST_KEY")
        with pytest.raises(EnvironmentProblem, match="SPECSWEEP_TEST_KEY"):
            measure_cell("http://127.0.0.1:1", workload, 1, failure_now=alive)
