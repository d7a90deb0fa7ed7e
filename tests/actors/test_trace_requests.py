"""Requests of a trace that are not answered: a prompt that is refused, a server that breaks, dies or says nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from doubles.tracing_server import VOCABULARY, TracingServer, text_of

from actors import trace_requests
from actors.load.workload import Workload, prompt_of
from actors.tracing import TraceOutcome, TraceRequest, trace_workload, tracing_config
from results.failures import Failure
from results.surface import SurfacePoint, surface_of
from results.traces import Trace, read_prompts
from search_spaces.config import EngineConfig, Triple

TEXTS = [f"prompt {i}" for i in range(8)]
STEPS, TOKENS = 3, 20
TRIPLE = Triple(num_steps=STEPS, eagle_topk=2, num_draft_tokens=6)


def asked(texts: list[str] = TEXTS, *, timeout_s: float = 10.0, concurrency: int = 3) -> TraceRequest:
    config = EngineConfig(layout=(2, 4, 5), triple=Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2), tp_size=1)
    load = Workload(
        prompts=tuple(prompt_of(text) for text in texts),
        warmup=(),
        concurrency=(1,),
        max_new_tokens=TOKENS,
        temperature=0.0,
        ignore_eos=True,
        stream=False,
        request_timeout_s=timeout_s,
        max_attempts=1,
    )
    return TraceRequest(
        config=tracing_config(config, num_steps=STEPS, eagle_topk=2),
        workload=load,
        concurrency=concurrency,
        ties="libstdcxx",
        vocabulary=VOCABULARY,
        # no pass is a second one: every text is known
        expected={prompt_of(text).prompt_id: text_of(text, TOKENS + STEPS) for text in texts},
    )


def test_a_refused_prompt_ends_nothing(tmp_path: Path) -> None:
    sent: list[int] = []

    def refuse(body: dict[str, Any]) -> int:
        if body["text"] != TEXTS[3]:
            return 200
        sent.append(body["sampling_params"]["max_new_tokens"])
        return 400

    with TracingServer(refuse=refuse) as server:
        outcome = trace_workload(server, asked(), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert outcome.prompts == 7
    assert outcome.problems == (
        f'prompt {prompt_of(TEXTS[3]).prompt_id}: not traced: HTTP 400: {{"error": "not this one"}}',
    )
    assert outcome.untraceable == {prompt_of(TEXTS[3]).prompt_id: 'not traced: HTTP 400: {"error": "not this one"}'}
    assert sent == [TOKENS + STEPS, TOKENS]


def _point(outcome: TraceOutcome | Failure) -> SurfacePoint:
    assert isinstance(outcome, TraceOutcome)
    assert (outcome.prompts, outcome.problems) == (8, ())
    return surface_of(Trace(outcome.folder), [TRIPLE])[0]


def test_a_prompt_without_room_for_more_than_its_answer_is_traced_all_the_same(tmp_path: Path) -> None:
    """Rounds and tokens are those of the full trace: only what the last round accepts beyond the end is unknown."""
    with TracingServer() as server:
        full = _point(trace_workload(server, asked(), tmp_path / "full"))
    with TracingServer(
        refuse=lambda body: 400 if body["sampling_params"]["max_new_tokens"] > TOKENS else 200
    ) as server:
        short = _point(trace_workload(server, asked(), tmp_path / "short"))
    rounds = [dict(zip(point.prompt_ids, point.rounds_by_prompt, strict=True)) for point in (full, short)]
    assert rounds[0] == rounds[1]
    assert sum(full.tokens_by_prompt) == sum(short.tokens_by_prompt) == 8 * TOKENS


def test_a_server_that_refuses_every_prompt_is_not_broken(tmp_path: Path) -> None:
    with TracingServer(refuse=lambda body: 400) as server:
        outcome = trace_workload(server, asked(), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert (outcome.prompts, len(outcome.problems)) == (0, 8)


@pytest.mark.parametrize("status", [0, 500])
def test_one_request_that_breaks_is_a_problem_of_its_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(trace_requests, "DEATH_GRACE_S", 0.01)
    with TracingServer(refuse=lambda body: status if body["text"] == TEXTS[5] else 200) as server:
        outcome = trace_workload(server, asked(), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert (outcome.prompts, len(outcome.problems), outcome.untraceable) == (7, 1, {})


@pytest.mark.parametrize("status", [0, 429, 503])
def test_what_breaks_once_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(trace_requests, "DEATH_GRACE_S", 0.01)
    broke: set[str] = set()

    def refuse(body: dict[str, Any]) -> int:
        if body["text"] not in (TEXTS[1], TEXTS[4]) or body["text"] in broke:
            return 200
        broke.add(body["text"])
        return status

    with TracingServer(refuse=refuse) as server:
        _point(trace_workload(server, asked(), tmp_path))


def test_many_prompts_that_always_break_are_problems_while_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second one; asked again they break in a row, which says nothing new about the server."""
    monkeypatch.setattr(trace_requests, "DEATH_GRACE_S", 0.01)
    bad, sent = TEXTS[::2], list[str]()

    def refuse(body: dict[str, Any]) -> int:
        sent.append(body["text"])
        return 500 if body["text"] in bad else 200

    with TracingServer(refuse=refuse) as server:
        outcome = trace_workload(server, asked(concurrency=1), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert (outcome.prompts, len(outcome.problems), outcome.untraceable) == (4, 4, {})
    assert [sent.count(text) for text in TEXTS] == [3, 1] * 4


def test_a_prompt_that_takes_all_its_time_is_not_asked_again(tmp_path: Path) -> None:
    sent: list[str] = []

    def refuse(body: dict[str, Any]) -> int:
        sent.append(body["text"])
        if body["text"] != TEXTS[2]:
            return 200
        time.sleep(0.6)
        return 0

    with TracingServer(refuse=refuse) as server:
        outcome = trace_workload(server, asked(timeout_s=0.3), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert outcome.problems == (f"prompt {prompt_of(TEXTS[2]).prompt_id}: not traced: no answer within 0.3 s",)
    assert (outcome.prompts, outcome.untraceable, sent.count(TEXTS[2])) == (7, {}, 1)


def test_a_server_that_is_given_up_has_failed_whatever_was_in_flight(tmp_path: Path) -> None:
    """Four break beside a slow one, whose answer does not turn the prompts that were not sent into a success."""

    def refuse(body: dict[str, Any]) -> int:
        if body["text"] != TEXTS[0]:
            return 503
        time.sleep(0.5)
        return 200

    with TracingServer(refuse=refuse) as server:
        outcome = trace_workload(server, asked(concurrency=4), tmp_path)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "client"
    assert "traced requests failed, the last with: HTTP 503" in outcome.message
    (folder,) = tmp_path.iterdir()
    assert [traced.prompt_id for traced in read_prompts(folder)] == [prompt_of(TEXTS[0]).prompt_id]


def test_a_server_that_dies_before_it_has_flushed_is_said_to_have_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All prompts are answered; the guard sees the end a little later than the refused flush."""
    flushed_at_s: list[float] = []

    async def refused(*_: object, **__: object) -> str:
        flushed_at_s.append(time.monotonic())
        return "connection refused"

    monkeypatch.setattr(trace_requests, "flush_when_idle", refused)
    with TracingServer() as server:

        def failure_now() -> Failure | None:
            if not flushed_at_s or time.monotonic() < flushed_at_s[0] + 0.3:
                return None
            return Failure(phase="ready", kind="oom", message="out of memory")

        server.failure_now = failure_now  # type: ignore[method-assign]
        outcome = trace_workload(server, asked(), tmp_path / "dies")
        assert outcome == Failure(phase="measure", kind="oom", message="out of memory", server_starts=1)
        monkeypatch.setattr(trace_requests, "DEATH_GRACE_S", 0.01)
        server.failure_now = lambda: None  # type: ignore[method-assign]
        alive = trace_workload(server, asked(), tmp_path / "lives")
    assert isinstance(alive, Failure)
    assert alive.message == "the traced server did not flush: connection refused"


@pytest.mark.parametrize(("status", "why"), [(0, "connection: "), (500, "HTTP 500: "), (429, "HTTP 429: ")])
def test_a_server_that_breaks_every_request_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, why: str
) -> None:
    monkeypatch.setattr(trace_requests, "DEATH_GRACE_S", 0.01)
    sent: list[str] = []

    def refuse(body: dict[str, Any]) -> int:
        sent.append(body["text"])
        return status

    with TracingServer(refuse=refuse) as server:
        outcome = trace_workload(server, asked(), tmp_path)
    assert isinstance(outcome, Failure)
    assert (outcome.phase, outcome.kind) == ("measure", "client")
    assert outcome.message.startswith(f"{len(sent)} traced requests failed, the last with: {why}")
    # up to two were in flight when the third failed
    assert 3 <= len(sent) <= 5


def test_a_server_that_dies_while_it_answers_is_said_to_have_died(tmp_path: Path) -> None:
    """Its connections break before its end is known."""
    broke_at_s: list[float] = []

    def refuse(body: dict[str, Any]) -> int:
        broke_at_s.append(time.monotonic())
        return 0

    with TracingServer(refuse=refuse) as server:

        def failure_now() -> Failure | None:
            if not broke_at_s or time.monotonic() < broke_at_s[0] + 0.3:
                return None
            return Failure(phase="ready", kind="oom", message="out of memory")

        server.failure_now = failure_now  # type: ignore[method-assign]
        outcome = trace_workload(server, asked(), tmp_path)
    assert outcome == Failure(phase="measure", kind="oom", message="out of memory", server_starts=1)


def test_a_silent_server_is_given_up_after_a_few_requests_in_a_row(tmp_path: Path) -> None:
    sent: list[str] = []

    def refuse(body: dict[str, Any]) -> int:
        sent.append(body["text"])
        time.sleep(0.3)
        return 0

    with TracingServer(refuse=refuse) as server:
        outcome = trace_workload(server, asked(timeout_s=0.1, concurrency=1), tmp_path)
    assert outcome == Failure(
        phase="measure",
        kind="timeout",
        message="3 traced requests failed, the last with: no answer within 0.1 s",
        server_starts=1,
    )
    assert sent == TEXTS[:3]
