"""Reading an HTTP response: framings, any split of the bytes, and what is no response."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.load.http_post import Address, _Exchange, post, request_head
from actors.load.http_response import BadResponseError, ResponseReader, Span, joined


def chunked(parts: list[bytes]) -> bytes:
    chunks = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n" + chunks + b"0\r\nTrailer: z\r\n\r\n"


def counted(parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def until_close(parts: list[bytes]) -> bytes:
    return b"HTTP/1.0 200 OK\r\n\r\n" + b"".join(parts)


@given(
    parts=st.lists(st.binary(max_size=40), max_size=6),
    framing=st.sampled_from([chunked, counted, until_close]),
    interim=st.booleans(),
    cuts=st.lists(st.floats(0, 1), max_size=10),
)
def test_any_split_gives_the_same_body(parts: list[bytes], framing: object, interim: bool, cuts: list[float]) -> None:
    data = (b"HTTP/1.1 100 Continue\r\n\r\n" if interim else b"") + framing(parts)  # type: ignore[operator]
    places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    reader = ResponseReader()
    body = b"".join(reader.feed(data[start:end]) for start, end in itertools.pairwise(places))
    assert reader.complete == (framing is not until_close)
    reader.closed()
    assert reader.complete
    assert body == b"".join(parts)
    assert reader.status == (503 if framing is counted else 200)


def test_a_piece_of_a_chunk_is_handed_out_at_once() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n01234") == b"01234"
    assert reader.feed(b"56789\r\n3\r\nab") == b"56789ab"
    assert not reader.complete
    assert reader.feed(b"c\r\n0\r\n\r\n") == b"c"
    assert reader.complete


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/1.1 abc\r\n\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\n", "a content length of"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "not a chunk's size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n", "a chunk is longer"),
        (b"x" * 70_000, "no end of its head"),
    ],
)
def test_what_is_no_response_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadResponseError, match=message):
        ResponseReader().feed(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "at once"), (counted([b"abc"])[:-1], "in the middle"), (chunked([b"abc"])[:-1], "in the middle")],
)
def test_an_early_end_is_an_error(data: bytes, message: str) -> None:
    reader = ResponseReader()
    reader.feed(data)
    with pytest.raises(BadResponseError, match=message):
        reader.closed()


def test_addresses() -> None:
    local = Address.of("http://[::1]:30000/generate")
    assert local == Address(host="::1", port=30000, tls=None, path="/generate")
    assert b"\r\nHost: [::1]:30000\r\n" in request_head(local, {}, 0)
    remote = Address.of("https://models.example/a/generate")
    assert (remote.host, remote.port, remote.path) == ("models.example", 443, "/a/generate")
    assert remote.tls is not None
    assert remote.tls.check_hostname
    for url in ("localhost:30000", "ftp://host/x", "http://"):
        with pytest.raises(ValueError, match="not an http or https URL"):
            Address.of(url)


def test_a_header_cannot_be_split() -> None:
    address = Address.of("http://h/generate")
    with pytest.raises(ValueError, match="line break") as refusal:
        request_head(address, {"Authorization": "Bearer a\r\nX: y"}, 0)
    assert "Bearer" not in str(refusal.value)


def test_what_the_receiver_raises_ends_the_request() -> None:
    async def run() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nbody")
            await writer.drain()
            await asyncio.sleep(30)

        def refuse(spans: Iterable[Span], _: Sequence[float]) -> None:
            raise KeyError(joined(spans))

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/generate")
            with pytest.raises(KeyError, match="body"):
                await asyncio.wait_for(post(address, request_head(address, {}, 0), b"", refuse, time.monotonic), 5)

    asyncio.run(run())


def test_pieces_are_handed_over_with_the_time_of_their_arrival_however_it_ends() -> None:
    """Twenty pieces of a stream, 20 ms apart; the end is told in full, cut in two, or never."""
    pieces = [b"%d" % (100 + number) for number in range(20)]
    endings = {"whole": [b"0\r\n\r\n"], "cut": [b"0\r\n\r", b"\n"], "never": [b""]}

    async def run(ending: list[bytes]) -> tuple[list[tuple[bytes, float]], list[float], object]:
        sent: list[float] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in pieces:
                await asyncio.sleep(0.02)
                sent.append(time.monotonic())
                writer.write(b"3\r\n%s\r\n" % piece)
            for part in ending:
                await asyncio.sleep(0.02)
                writer.write(part)
            await asyncio.sleep(30 if ending != [b""] else 0)
            writer.close()

        seen: list[tuple[bytes, float]] = []

        def note(spans: Iterable[Span], times_s: Sequence[float]) -> None:
            for span, time_s in zip(spans, times_s, strict=True):
                if body := joined([span]):
                    seen.append((body, time_s))

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/generate")
            request = post(address, request_head(address, {}, 0), b"", note, time.monotonic)
            try:
                result: object = await asyncio.wait_for(request, 5)
            except BadResponseError as error:
                result = str(error)
        return seen, sent, result

    for name, ending in endings.items():
        seen, sent, result = asyncio.run(run(ending))
        assert result == ("the server closed the connection in the middle" if name == "never" else (200, b""))
        assert b"".join(piece for piece, _ in seen) == b"".join(pieces)
        if len(seen) == len(pieces):  # a machine that is very busy may give two pieces in one read
            lags_s = [arrived - at for (_, arrived), at in zip(seen, sent, strict=True)]
            assert min(lags_s) >= 0
            assert sorted(lags_s)[len(lags_s) // 2] < 0.015


@given(
    parts=st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    cuts=st.lists(st.floats(0, 1), max_size=6),
    whole=st.booleans(),
)
def test_piece_after_piece_gives_what_they_give_one_by_one(parts: list[bytes], cuts: list[float], whole: bool) -> None:
    """`whole`: a piece is a chunk, as in a stream; else the same bytes are cut anywhere."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [head, *(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]
    if not whole:
        data = b"".join(pieces)
        places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
        pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    single, batch = ResponseReader(), ResponseReader()
    bodies = [single.feed(piece) for piece in pieces]
    assert [joined([span]) for span in batch.feed_each(pieces)] == bodies
    assert b"".join(bodies) == b"".join(parts)
    assert batch.complete
    assert single.complete


@pytest.mark.parametrize(
    "broken", [b"5\r\nabc\r\n", b"3\r\nabc\r\r\n", b"xyz\r\nabc\r\n", b"2\r\nabc\r\n", b"-1\r\na\r\n"]
)
def test_a_broken_piece_among_whole_ones_is_refused_and_those_before_it_are_handed_out(broken: bytes) -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    good, bodies = b"3\r\nabc\r\n", []
    with pytest.raises(BadResponseError):
        bodies.extend(joined([span]) for span in reader.feed_each([good, good, broken, good]))
    assert b"".join(bodies).startswith(b"abcabc")
    assert not reader.complete


@pytest.mark.parametrize(("size", "most"), [(10, 64), (3000, 37), (200_000, 2)])
def test_what_is_held_is_bounded_in_pieces_and_in_bytes(size: int, most: int) -> None:
    taken: list[int] = []

    def take(spans: Iterable[Span], times_s: Sequence[float]) -> None:
        pieces = [len(joined([span])) for span in spans]
        assert set(pieces) <= {size, 0}
        assert len(pieces) == len(times_s)
        taken.append(len(times_s))

    loop = asyncio.new_event_loop()
    exchange = _Exchange(take, time.monotonic, loop.create_future())
    exchange.data_received(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (size, b"x" * size)
    )
    for _ in range(200):
        exchange.data_received(b"%x\r\n%s\r\n" % (size, b"x" * size))
    assert taken[0] == 1
    assert set(taken[1:]) == {most}
    exchange.data_received(b"0\r\n\r\n")
    assert exchange.finished.done()
    assert sum(taken) == 202
    loop.close()
