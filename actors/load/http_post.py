"""Posting one request and seeing its answer arrive, with the time of every read taken in the socket's own callback.

A general HTTP client hands each piece of a stream through a parser, a buffer and a waiting task; at thousands of events
per second that costs several times what the events themselves do, and the time of arrival is taken late. Here a piece
is put down with its time and nothing more; what it says is read when many have come, which costs less by far than
reading each of them in a process that has just been woken. Requests use one connection each, as
`sglang.bench_serving` does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from actors.load.http_response import BadResponseError, ResponseReader, Span, joined

OnBody = Callable[[Iterable[Span], Sequence[float]], None]
"""Takes pieces of the body, some of them empty, and when each arrived. It has to take them all, in order."""

_RETURN = ord("\r")
_HELD_BYTES = 256 * 1024
_PIECE_BYTES = 4096
"""Pieces of a chunked body are put down until they are so large in all, where each counts as so much larger: few enough
to be found in the processor's caches, many enough for reading them to be worth a start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where requests go, out of a URL; `tls` is set for https. ValueError for what is not an http or https URL."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an http or https URL: {url!r}")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(host=parts.hostname, port=parts.port or (443 if tls else 80), tls=tls, path=parts.path or "/")


def request_head(address: Address, headers: Mapping[str, str], body_bytes: int) -> bytes:
    """The head of a POST that asks for an uncompressed answer and the end of the connection after it."""
    lines = [
        f"POST {address.path} HTTP/1.1",
        f"Host: {f'[{address.host}]' if ':' in address.host else address.host}:{address.port}",
        "Connection: close",
        "Accept-Encoding: identity",
        f"Content-Length: {body_bytes}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def post(
    address: Address, head: bytes, body: bytes, on_body: OnBody, now_s: Callable[[], float]
) -> tuple[int, bytes]:
    """Send the request; `on_body` gets the pieces of a 200 response's body in order, with the `now_s` of their arrival.

    Returns status and body; the body is empty for a 200 response. Pieces are handed over some time after they arrived,
    at the end at the latest, however it ends. What `on_body` raises ends the request and is raised here. OSError when
    there is no connection, BadResponseError when the response breaks off; the connection is gone on return.
    """
    loop = asyncio.get_running_loop()
    transport, exchange = await loop.create_connection(
        lambda: _Exchange(on_body, now_s, loop.create_future()), address.host, address.port, ssl=address.tls
    )
    try:
        transport.write(head + body)
        await exchange.finished
        return exchange.response.status or 0, bytes(exchange.refused)
    finally:
        transport.abort()
        exchange.read()


class _Exchange(asyncio.Protocol):
    """One response as it arrives. `finished` is done when it is complete, or has the error that ended it."""

    def __init__(self, on_body: OnBody, now_s: Callable[[], float], finished: asyncio.Future[None]) -> None:
        self.response = ResponseReader()
        self.refused = bytearray()
        self.finished = finished
        self._on_body, self._now_s = on_body, now_s
        self._held: list[bytes] = []
        self._arrived_s: list[float] = []
        self._room = 0

    def data_received(self, data: bytes) -> None:
        self._arrived_s.append(self._now_s())
        self._held.append(data)
        size = len(data)
        self._room -= size + _PIECE_BYTES
        # the last piece of a chunked response ends in an empty line, "\r\n\r\n", unless it is shorter than that
        if self._room < 0 or size < 4 or data[-4] == _RETURN:
            self.read()

    def read(self) -> None:
        """Read what was put down. After the end nothing is left of it."""
        if not self._held:
            return
        held, self._held, arrived_s, self._arrived_s = self._held, [], self._arrived_s, []
        try:
            self._hand_over(self.response.feed_each(held), arrived_s)
        except Exception as error:
            self._end(error)
            return
        if self.response.is_chunked:
            self._room = _HELD_BYTES
        if self.response.complete:
            self._end(None)

    def _hand_over(self, spans: Iterable[Span], arrived_s: Sequence[float]) -> None:
        if self.response.status is None:
            spans = list(spans)  # one piece, with the head's end or without
        if self.response.status == 200:
            self._on_body(spans, arrived_s)
        else:
            self.refused += joined(spans)

    def connection_lost(self, error: Exception | None) -> None:
        self.read()
        try:
            if error is None and not self.finished.done():
                self.response.closed()
        except BadResponseError as early:
            error = early
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self.finished.done():
            return
        if error is None:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(error)
