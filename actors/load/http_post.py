"""Posting one request and seeing its answer arrive, with the time of every read taken in the socket's own callback.

A general HTTP client hands each piece of a stream through a parser, a buffer and a waiting task; at thousands of events
per second that costs several times what the events themselves do, and the time of arrival is taken late. Requests here
use one connection each, as `sglang.bench_serving` does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from actors.load.http_response import BadResponseError, ResponseReader

OnBody = Callable[[bytes], None]

_READ_BYTES = 65536


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


async def post(address: Address, head: bytes, body: bytes, on_body: OnBody) -> tuple[int, bytes]:
    """Send the request; `on_body` gets every piece of a 200 response's body as it arrives. Returns status and body.

    The returned body is empty for a 200 response. What `on_body` raises ends the request and is raised here. OSError
    when there is no connection, BadResponseError when the response breaks off; the connection is gone on return.
    """
    loop = asyncio.get_running_loop()
    transport, exchange = await loop.create_connection(
        lambda: _Exchange(on_body, loop.create_future()), address.host, address.port, ssl=address.tls
    )
    try:
        transport.write(head + body)
        await exchange.finished
        return exchange.response.status or 0, bytes(exchange.refused)
    finally:
        transport.abort()


class _Exchange(asyncio.BufferedProtocol):
    """One response as it arrives. `finished` is done when it is complete, or has the error that ended it.

    Buffered, because a plain protocol has 256 KiB allocated and given back for every read, whatever its size.
    """

    def __init__(self, on_body: OnBody, finished: asyncio.Future[None]) -> None:
        self.response = ResponseReader()
        self.refused = bytearray()
        self.finished = finished
        self._on_body = on_body
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.finished.done():
            return
        try:
            body = self.response.feed(bytes(self._buffer[:nbytes]))
            if body and self.response.status == 200:
                self._on_body(body)
            else:
                self.refused += body
        except Exception as error:
            self.finished.set_exception(error)
            return
        if self.response.complete:
            self.finished.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.finished.done():
            return
        try:
            if error is None:
                self.response.closed()
        except BadResponseError as early:
            error = early
        if error is None:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(error)
