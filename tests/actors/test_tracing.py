"""Driving a trace: batches and concurrency, poison that the target says, resuming, limits, a server that dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doubles.tracing_server import PROMPT_TOKENS, VOCABULARY, TracingServer, text_of

from actors.load.workload import Workload, prompt_of
from actors.tracing import TraceOutcome, TraceRequest, trace_workload, tracing_config
from results.failures import Failure
from results.pool_replay import accepted_lengths
from results.surface import surface_of
from results.traces import Trace
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import InputError

CONFIG = EngineConfig(layout=(2, 4, 5), triple=Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2), tp_size=1)


def workload(texts: list[str], *, tokens: int = 20, ignore_eos: bool = True, temperature: float = 0.0) -> Workload:
    return Workload(
        prompts=tuple(prompt_of(text) for text in texts),
        warmup=(),
        concurrency=(1,),
        max_new_tokens=tokens,
        temperature=temperature,
        ignore_eos=ignore_eos,
        stream=False,
        request_timeout_s=10.0,
        max_attempts=1,
    )


def request(load: Workload, topk: int = 2, **changes: object) -> TraceRequest:
    values: dict[str, object] = {
        "config": tracing_config(CONFIG, num_steps=3, eagle_topk=topk),
        "workload": load,
        "concurrency": 3,
        "ties": "libstdcxx",
        "vocabulary": VOCABULARY,
        "prompts_per_segment": 4,
    }
    return TraceRequest(**(values | changes))  # type: ignore[arg-type]


TEXTS = [f"prompt {i}" for i in range(9)] + ["loop of three"]


@pytest.mark.parametrize("topk", [1, 2])
def test_every_prompt_comes_out_whole(tmp_path: Path, topk: int) -> None:
    with TracingServer() as server:
        outcome = trace_workload(server, request(workload(TEXTS), topk), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert (outcome.prompts, outcome.problems) == (10, ())
    assert server.most_at_once <= 3
    trace = Trace(outcome.folder)
    assert [p.prompt_id for p in trace.prompts] != []
    for prompt, positions in zip(trace.prompts, _positions(trace), strict=True):
        text = next(t for t in TEXTS if prompt_of(t).prompt_id == prompt.prompt_id)
        assert list(prompt.output_ids) == text_of(text, 23)
        assert (prompt.length, positions, prompt.prompt_tokens) == (20, 19, PROMPT_TOKENS)


def _positions(trace: Trace) -> list[int]:
    counts = [0] * len(trace.prompts)
    for piece in trace.pieces():
        assert (piece.pools.continuation >= 0).all()
        counts[piece.prompt] += len(piece.pools.tokens)
    return counts


def test_poison_that_the_target_says_is_traced_again(tmp_path: Path) -> None:
    """The first poison is the highest token; prompts that say it get another one, which no known text holds."""
    with TracingServer() as server:
        outcome = trace_workload(server, request(workload(TEXTS), prompts_per_segment=99), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert outcome.prompts == 10
    assert len(server.orders) == 2
    first, second = (order.poison_id for order in server.orders)
    said = {t for t in TEXTS if first in text_of(t, 20)}
    assert first == VOCABULARY - 1
    assert server.requests == 10 + len(said) > 10
    assert not any(second in text_of(t, 23) for t in said)


def test_a_known_text_gets_the_right_poison_at_once(tmp_path: Path) -> None:
    load = workload(TEXTS[:3])
    expected = {p.prompt_id: text_of(p.text, 20) for p in load.prompts}
    with TracingServer() as server:
        outcome = trace_workload(server, request(load, expected=expected), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert (server.requests, outcome.problems) == (3, ())


def test_another_text_than_the_baseline_is_reported(tmp_path: Path) -> None:
    load = workload(TEXTS[:2])
    wrong = text_of(TEXTS[0], 20)
    wrong[5] += 1
    with TracingServer() as server:
        outcome = trace_workload(server, request(load, expected={load.prompts[0].prompt_id: wrong}), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert outcome.problems == (f"prompt {load.prompts[0].prompt_id}: another text from token 5 on",)


def test_resumes_after_the_last_finished_batch(tmp_path: Path) -> None:
    asked = request(workload(TEXTS), prompts_per_segment=2)
    with TracingServer(dies_after=7) as server:
        broken = trace_workload(server, asked, tmp_path)
    assert isinstance(broken, Failure)
    assert broken.message == "the server died"
    folder = tmp_path / asked.facts.folder_name
    done = Trace(folder).prompts
    assert 0 < len(done) < 10
    with TracingServer() as server:
        outcome = trace_workload(server, asked, tmp_path)
        again = {p for p in asked.workload.prompts if p.prompt_id not in {d.prompt_id for d in done}}
        assert server.requests <= 2 * len(again)
    assert isinstance(outcome, TraceOutcome)
    resumed = Trace(folder).prompts
    assert resumed[: len(done)] == done
    assert len({p.prompt_id for p in resumed}) == 10
    with TracingServer() as server:
        whole = trace_workload(server, asked, tmp_path / "at_once")
    assert isinstance(whole, TraceOutcome)
    assert _lengths(Trace(folder)) == _lengths(Trace(whole.folder))


def _lengths(trace: Trace) -> dict[str, list[int]]:
    triple = Triple(num_steps=3, eagle_topk=2, num_draft_tokens=6)
    found: dict[str, list[int]] = {}
    for piece in trace.pieces():
        accepted = accepted_lengths(piece.pools, [triple]).lengths[0].tolist()
        found.setdefault(trace.prompts[piece.prompt].prompt_id, []).extend(accepted)
    return found


def test_a_limit_ends_the_trace_with_what_is_whole(tmp_path: Path) -> None:
    with TracingServer() as server:
        outcome = trace_workload(server, request(workload(TEXTS), max_bytes=6000), tmp_path)
    assert isinstance(outcome, Failure)
    assert outcome.message == "the trace has reached its limit of 6000 bytes"


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        ({"why": "[Errno 28] No space left on device"}, "the server cannot write the trace: [Errno 28] No space left"),
        ({}, "the server wrote no trace: "),
    ],
)
def test_a_full_disk_where_the_server_writes_is_named(tmp_path: Path, breaks: dict[str, str], message: str) -> None:
    with TracingServer(forgets=frozenset({PROMPT_TOKENS + 2})) as server:
        flush = server.flush

        def fill_up() -> None:
            server._index += [json.dumps({"truncated": True} | breaks)] if breaks else []
            flush()
            if not breaks:
                Path(server.orders[-1].file).write_bytes(b"")

        server.flush = fill_up  # type: ignore[method-assign]
        outcome = trace_workload(server, request(workload(TEXTS)), tmp_path)
    assert isinstance(outcome, Failure)
    assert (outcome.phase, outcome.kind) == ("measure", "machine")
    assert outcome.message.startswith(message)


def test_positions_that_never_come_are_a_problem(tmp_path: Path) -> None:
    with TracingServer(forgets=frozenset({PROMPT_TOKENS + 4})) as server:
        outcome = trace_workload(server, request(workload(TEXTS[:1])), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    assert outcome.prompts == 0
    name = prompt_of(TEXTS[0]).prompt_id
    assert outcome.problems[-1] == f"prompt {name}: positions missing after 3 passes"
    assert outcome.untraceable == {name: "positions missing after 3 passes"}


def test_an_answer_ends_at_its_end_token(tmp_path: Path) -> None:
    text = text_of(TEXTS[0], 23)
    load = workload(TEXTS[:1], ignore_eos=False)
    with TracingServer() as server:
        outcome = trace_workload(server, request(load, end_ids=frozenset({text[9]})), tmp_path)
    assert isinstance(outcome, TraceOutcome)
    trace = Trace(outcome.folder)
    assert trace.prompts[0].length == text.index(text[9]) + 1
    point = surface_of(trace, [Triple(num_steps=1, eagle_topk=2, num_draft_tokens=3)])[0]
    assert point.tokens_by_prompt == (trace.prompts[0].length,)


@pytest.mark.parametrize("tokens", [6, 15])
def test_an_answer_ends_where_the_baselines_did_and_a_difference_is_reported(tmp_path: Path, tokens: int) -> None:
    """Whatever is known of end tokens: it is the server's own word."""
    text = text_of(TEXTS[0], 23)
    assert text.index(text[9]) == 9
    load = workload(TEXTS[:2], ignore_eos=False)
    known = {load.prompts[0].prompt_id: text[:tokens]}
    with TracingServer() as server:
        asked = request(load, end_ids=frozenset({text[9]}), expected=known)
        outcome = trace_workload(server, asked, tmp_path)
    assert isinstance(outcome, TraceOutcome)
    lengths = {prompt.prompt_id: prompt.length for prompt in Trace(outcome.folder).prompts}
    assert lengths[load.prompts[0].prompt_id] == tokens
    said = f"prompt {load.prompts[0].prompt_id}: the baseline ended it after {tokens} tokens, not after 10"
    assert outcome.problems == (said,)


def test_what_cannot_be_traced(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"workload\.temperature: a trace needs 0, not 0\.7"):
        request(workload(TEXTS[:1], temperature=0.7))
    with pytest.raises(ValueError, match="nothing to trace"):
        request(workload(TEXTS[:1]), config=EngineConfig(layout=None, triple=None, tp_size=1))
