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


@given(
    tokens=st.lists(st.integers(0, 120), min_size=1, max_size=30),
    incremental=st.booleans(),
    ends=st.lists(st.sampled_from([b"", b',"cached_tokens":3', b',"t":0.25']), min_size=30, max_size=30),
    breaks=st.sampled_from([b"\n\n", b"\r\n\r\n"]),
)
def test_many_events_at_once_are_read_as_byte_by_byte(
    tokens: list[int], incremental: bool, ends: list[bytes], breaks: bytes
) -> None:
    """Numbers of tokens that rise and fall, with all their digits, and ends that change."""
    events, before = [], 0
    for number, end in zip(tokens, ends, strict=False):
        ids = list(range(before if incremental else 0, number))
        before = number
        payload = b'{"output_ids":%b,"meta_info":{"completion_tokens":%d%b}}' % (json.dumps(ids).encode(), number, end)
        events.append(b"data: " + payload + breaks)
    events += [b": a comment\n\n", b"data: [DONE]\n\n"]
    times_s = [float(number) for number in range(len(events))]
    batch, single = GenerateStream(), GenerateStream()
    batch.feed_each([(b"x\r\n" + event + b"\r\n", 3, 3 + len(event)) for event in events], times_s)
    for event, time_s in zip(events, times_s, strict=True):
        for byte in event:
            single.feed(bytes([byte]), time_s)
    assert (batch.chunk_tokens, batch.chunk_times_s) == (single.chunk_tokens, single.chunk_times_s)
    assert (batch.done, batch.finished_s, batch.final()) == (single.done, single.finished_s, single.final())
    rises = [number for index, number in enumerate(tokens) if number > max(tokens[:index], default=0)]
    assert sum(batch.chunk_tokens) == max(rises, default=0)


@pytest.mark.parametrize(
    "odd",
    [
        b'data: {"meta_info":{"completion_tokens":x2}}\n\n',
        b'data: {"text":"a\nb","meta_info":{"completion_tokens":12}}\n\n',
        b'dat: {"meta_info":{"completion_tokens":12}}\n\n',
        b'data: {"meta_info":{"completion_tokenz":12}}\n\n',
        b'data: {"meta_info":{"completion_tokens":12}}\n',
    ],
)
def test_an_event_that_only_resembles_the_last_is_read_in_full(odd: bytes) -> None:
    usual = [
        b'data: {"output_ids":%b,"meta_info":{"completion_tokens":%d}}\n\n'
        % (json.dumps([7] * number).encode(), number)
        for number in (10, 11)
    ]
    batch, single = GenerateStream(), GenerateStream()
    events = [*usual, odd, b'data: {"meta_info":{"completion_tokens":13}}\n\n']
    batch.feed_each([(event, 0, len(event)) for event in events], [1.0, 2.0, 3.0, 4.0])
    for time_s, event in enumerate(events, 1):
        for byte in event:
            single.feed(bytes([byte]), float(time_s))
    assert batch.chunk_tokens == single.chunk_tokens
    assert batch.chunk_times_s == single.chunk_times_s
    assert batch.finished_s == single.finished_s


def test_what_was_fed_before_an_error_counts() -> None:
    events = [b'data: {"output_ids":[%d],"meta_info":{"completion_tokens":%d}}\n\n' % (n, n) for n in (1, 2, 3)]
    stream = GenerateStream()
    with pytest.raises(BrokenStreamError, match="not JSON"):
        stream.feed_each([(event, 0, len(event)) for event in [*events, b"data: {\n\n"]], [1.0, 2.0, 3.0, 4.0])
    assert stream.chunk_times_s == [1.0, 2.0, 3.0]
