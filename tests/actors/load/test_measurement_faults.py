"""Requests that fail, servers that die, warm-up and keys: what a measurement says then."""

from __future__ import annotations

import threading
import time

import pytest
from doubles.timed_answers import TimedPlan
from doubles.timed_server import TimedServer
from load_builders import numbered_workload
from measured_servers import alive, failed, measured, ttft_ms

from actors.load.measurement import measure_cell, warm_up
from results.failures import Failure
from search_spaces.errors import EnvironmentProblem


class TestFaults:
    def test_a_retried_request_is_timed_by_its_successful_attempt_and_counted(self) -> None:
        with TimedServer(TimedPlan(ttft_s=0.02, step_s=0.002, fail_first=(500,))) as server:
            cell = measured(server, numbered_workload(3, max_attempts=2), 1)
        assert [row.attempts for row in cell.rows] == [2, 1, 1]
        assert [row.error for row in cell.rows] == [None] * 3
        assert cell.attempt_failures == (("refused", 1),)
        assert cell.rows[0].sent_s >= 0.2  # the first attempt and the pause are not in its latency
        retried, *others = cell.rows
        # but in what the user waited
        assert retried.first_sent_s == 0.0
        assert retried.e2e_s == retried.finished_s
        assert retried.e2e_s is not None
        assert retried.e2e_s >= 0.2 + retried.finished_s - retried.sent_s
        assert [row.first_sent_s for row in others] == [row.sent_s for row in others]
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
        assert row.first_sent_s == 0.0
        assert (row.sent_s > 0) == (attempts > 1)
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
