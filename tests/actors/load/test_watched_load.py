"""When a load is ended early, and by whose account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.load import watched_load
from actors.load.arrivals import closed_loop, open_loop
from actors.load.client import FailureReason, Sent
from actors.load.generate_stream import GenerateStream
from actors.load.request_rows import failed_row
from actors.load.watched_load import LagMeter, run_load
from actors.load.workload import Prompt, prompt_of
from results.failures import Failure

PROMPTS = tuple(prompt_of(f"p{number}") for number in range(12))
DEAD = Failure(phase="ready", kind="crash", message="killed by signal 9")


def sent(prompt: Prompt, reason: FailureReason | None = None) -> Sent:
    error = None if reason is None else f"it was {reason}"
    row = failed_row(prompt.prompt_id, GenerateStream(), sent_s=0.0, first_sent_s=0.0, now_s=1.0, attempts=1, error="x")
    row = type(row)(**{name: getattr(row, name) for name in row.__slots__} | {"error": error})
    return Sent(row=row, attempt_failures=() if reason is None else (reason,))


def run(
    reasons: list[FailureReason | None],
    *,
    concurrency: int = 1,
    patience: int = 3,
    failure_now: Callable[[], Failure | None] = lambda: None,
) -> list[Sent] | Failure:
    async def send(prompt: Prompt) -> Sent:
        await asyncio.sleep(0)
        return sent(prompt, reasons[PROMPTS.index(prompt)])

    async def loop(each: Callable[[Prompt], Awaitable[Sent]]) -> list[Sent]:
        return await closed_loop(PROMPTS[: len(reasons)], concurrency, each)

    return asyncio.run(run_load(loop, send, patience=patience, failure_now=failure_now, phase="measure"))


def test_single_failures_are_part_of_the_result() -> None:
    reasons: list[FailureReason | None] = [None, "refused", "timeout", None, "refused", "refused"]
    answers = run(reasons)
    assert isinstance(answers, list)
    assert [answer.failed for answer in answers] == reasons


@pytest.mark.parametrize(("reason", "kind"), [("timeout", "timeout"), ("connection", "client")])
def test_silence_ends_it(monkeypatch: pytest.MonkeyPatch, reason: FailureReason, kind: str) -> None:
    monkeypatch.setattr(watched_load, "_DEATH_GRACE_S", 0.0)
    failure = run([None, reason, None, reason, reason, reason, None])
    assert isinstance(failure, Failure)
    assert (failure.phase, failure.kind) == ("measure", kind)
    assert failure.message == f"3 requests in a row failed, the last with: it was {reason}"


@pytest.mark.parametrize("reason", ["refused", "broken"])
def test_requests_that_the_server_does_not_take_end_nothing(reason: FailureReason) -> None:
    """Prompts longer than the context: three of them in a row are no silent server."""
    reasons: list[FailureReason | None] = [reason] * 5 + [None]
    answers = run(reasons)
    assert isinstance(answers, list)
    assert [answer.failed for answer in answers] == reasons


@given(st.lists(st.sampled_from([None, "refused", "broken", "timeout"]), min_size=1, max_size=12))
def test_given_up_when_three_found_silence_and_none_succeeded_between_them(reasons: list[FailureReason | None]) -> None:
    silent, given_up = 0, False
    for reason in reasons:
        silent = 0 if reason is None else silent + (reason == "timeout")
        given_up |= silent == 3
    assert isinstance(run(reasons), Failure) == (given_up or None not in reasons)


@pytest.mark.parametrize(("late", "kept"), [(4, True), (6, False)])
def test_in_an_open_loop_silence_is_that_of_all_who_were_in_flight(late: int, kept: bool) -> None:
    """Six are in flight when the server drops `late` of them; the others are answered."""

    async def send(prompt: Prompt) -> Sent:
        at = PROMPTS.index(prompt)
        await asyncio.sleep(0.05 if at < late else 0.1)
        return sent(prompt, "timeout" if at < late else None)

    async def loop(each: Callable[[Prompt], Awaitable[Sent]]) -> list[Sent]:
        arrivals_s = [0.0] * 6 + [0.2] * 6
        return await open_loop(PROMPTS, arrivals_s, each)

    answers = asyncio.run(run_load(loop, send, patience=3, failure_now=lambda: None, phase="measure"))
    assert isinstance(answers, list) == kept


def test_a_success_that_comes_after_giving_up_changes_nothing() -> None:
    failure = run(["timeout", "timeout", "timeout", None, None, None], concurrency=3)
    assert isinstance(failure, Failure)
    assert failure.message.startswith("3 requests in a row failed")


def test_death_explains_broken_connections() -> None:
    looks = iter([None, None])
    failure = run([None, "connection", "connection"], failure_now=lambda: next(looks, DEAD))
    assert isinstance(failure, Failure)
    assert (failure.phase, failure.kind, failure.message) == ("measure", "crash", "killed by signal 9")


def test_a_load_that_was_answered_in_full_is_kept_though_the_server_died_after_it() -> None:
    looks = iter([None])
    answers = run([None, None], failure_now=lambda: next(looks, DEAD))
    assert isinstance(answers, list)


def test_errors_of_our_own_are_raised() -> None:
    def broken() -> Failure | None:
        raise RuntimeError("no server runs")

    with pytest.raises(RuntimeError, match="no server runs"):
        run(["connection"] * 3, failure_now=broken)


def test_the_lag_meter_sees_a_blocked_loop() -> None:

    meter = LagMeter()

    async def blocked() -> None:
        task = asyncio.create_task(meter.run())
        await asyncio.sleep(0.01)
        time.sleep(0.3)
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(blocked())
    assert meter.longest_s > 0.2
