"""Reading a streamed answer: any split of the bytes gives the same tokens, ids and counters."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.load.generate_stream import BrokenStreamError, GenerateStream

NASTY_TEXT = ' "completion_tokens":99, \\"completion_tokens\\": 3 \n data: [DONE] 🦙\u2028'


def stream_of(commits: list[int], *, incremental: bool, ending: bytes = b"data: [DONE]\n\n") -> bytes:
    """The bytes of an answer whose events carry `commits` new tokens each; token i has the id 100 + i."""
    out, sent = b"", 0
    for index, commit in enumerate(commits):
        first, sent = (sent if incremental else 0), sent + commit
        event = {
            "text": NASTY_TEXT * (sent - first),
            "output_ids": list(range(100 + first, 100 + sent)),
            "meta_info": {"completion_tokens": sent, "finish_reason": None, "prompt_tokens": 5},
        }
        if index == len(commits) - 1:
            event["meta_info"].update(finish_reason={"type": "length"}, spec_verify_ct=index)  # type: ignore[attr-defined]
        out += b"data: " + json.dumps(event, ensure_ascii=index % 2 == 0).encode() + b"\n\n"
    return out + ending


@given(
    commits=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    incremental=st.booleans(),
    cuts=st.lists(st.floats(0, 1), max_size=8),
)
def test_any_split_gives_the_same_answer(commits: list[int], incremental: bool, cuts: list[float]) -> None:
    data = stream_of(commits, incremental=incremental)
    places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    stream = GenerateStream()
    for now, (start, end) in enumerate(itertools.pairwise(places)):
        stream.feed(data[start:end], float(now))
    assert stream.chunk_tokens == commits
    assert stream.chunk_times_s == sorted(stream.chunk_times_s)
    assert stream.done
    last = stream.final()
    assert last["output_ids"] == list(range(100, 100 + sum(commits)))
    assert last["meta_info"]["completion_tokens"] == sum(commits)
    assert last["meta_info"]["finish_reason"] == {"type": "length"}


def test_times_are_those_of_arrival_and_the_end_is_the_last_token_not_done() -> None:
    first, second = stream_of([1, 4], incremental=False, ending=b"").split(b"\n\n")[:2]
    stream = GenerateStream()
    stream.feed(first + b"\n\n", 0.25)
    stream.feed(second, 0.5)
    assert stream.chunk_times_s == [0.25]
    stream.feed(b"\n\n", 0.75)
    stream.feed(b"data: [DONE]\n\n", 9.0)
    assert stream.chunk_times_s == [0.25, 0.75]
    assert stream.chunk_tokens == [1, 4]
    assert stream.finished_s == 0.75


def test_a_retracted_request_is_not_counted_twice() -> None:
    stream = GenerateStream()
    for now, tokens in enumerate([1, 4, 2, 4, 5]):
        meta = {"completion_tokens": tokens, "finish_reason": None}
        stream.feed(f"data: {json.dumps({'output_ids': list(range(tokens)), 'meta_info': meta})}\n\n".encode(), now)
    assert stream.chunk_tokens == [1, 3, 1]
    assert stream.chunk_times_s == [0, 1, 4]


def test_an_empty_first_event_is_no_token() -> None:
    stream = GenerateStream()
    stream.feed(b'data: {"output_ids":[],"meta_info":{"completion_tokens":0}}\n\n', 1.0)
    assert stream.chunk_times_s == []
    stream.feed(b'data: {"output_ids":[7],"meta_info":{"completion_tokens":1}}\n\n', 2.0)
    assert stream.chunk_times_s == [2.0]


def test_comments_and_other_fields_of_the_event_stream_are_skipped() -> None:
    stream = GenerateStream()
    stream.feed(b": keep-alive\r\n\r\nevent: x\r\n", 0.5)
    stream.feed(b'data: {"output_ids":[7],"meta_info":{"completion_tokens": 1}}\r\n\r\ndata: [DONE]\r\n\r\n', 1.0)
    assert (stream.chunk_tokens, stream.done) == ([1], True)


@pytest.mark.parametrize("payload", [b"data: {\n", b"data: 7\n", b"data: \n"])
def test_what_is_not_the_protocol_is_refused(payload: bytes) -> None:
    stream = GenerateStream()
    with pytest.raises(BrokenStreamError, match="an event is not"):
        stream.feed(payload, 0.0)


def test_nothing_at_all_is_refused() -> None:
    stream = GenerateStream()
    stream.feed(b"data: [DONE]\n\n", 0.0)
    with pytest.raises(BrokenStreamError, match="before the first token"):
        stream.final()
