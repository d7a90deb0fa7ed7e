"""One HTTP/1.1 response out of bytes: as much of the protocol as a streamed answer needs. Pure, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Span = tuple[bytes, int, int]
"""Bytes, and where in them what is meant starts and stops: a copy spared."""

_MAX_HEAD_BYTES = 65536
_MAX_SIZE_LINE = 16
_HEX = re.compile(rb"[0-9a-fA-F]+")


class BadResponseError(Exception):
    """The bytes are not an HTTP/1.1 response, or it ended too early; one line."""


class ResponseReader:
    """Takes a response's bytes in any split and hands out its body (RFC 9112, sections 4 to 6).

    `status` is None until the head is complete. `complete` is True once the body has ended as its framing says.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.complete = False
        self._rest = b""
        self._chunked = False
        self._until_close = False
        self._need = 0  # bytes still to come of the current chunk, or of the whole body
        self._after_chunk = False
        self._trailers = False

    @property
    def is_chunked(self) -> bool:
        """Whether the body is known to come in chunks."""
        return self._chunked

    def feed(self, data: bytes) -> bytes:
        """The part of the body that these bytes hold, b"" for none. BadResponseError when they make no response."""
        if self.complete:
            return b""
        data = self._rest + data
        self._rest = b""
        while self.status is None:
            head, found, after = data.partition(b"\r\n\r\n")
            if not found:
                if len(data) > _MAX_HEAD_BYTES:
                    raise BadResponseError("the response has no end of its head")
                self._rest = data
                return b""
            self._read_head(head)
            data = after
        if self._until_close:
            return data
        return self._dechunk(data) if self._chunked else self._counted(data)

    def feed_each(self, pieces: Iterable[bytes]) -> Iterator[Span]:
        """What `feed` gives for one piece after another, each when it is asked for.

        A stream consists of pieces that are one whole chunk each, its size as servers write it and of as many digits as
        the one before. Those are told by their first and last bytes.
        """
        plain, line = self._between_chunks(), 0
        for piece in pieces:
            stop = len(piece) - 2
            size = stop - line
            if plain and size > 0 and piece[:line] == b"%x\r\n" % size and piece[stop:] == b"\r\n":
                yield piece, line, stop
                continue
            body = self.feed(piece)
            plain, line = self._between_chunks(), piece.find(b"\n", 0, _MAX_SIZE_LINE) + 1
            yield body, 0, len(body)

    def _between_chunks(self) -> bool:
        open_ended = self._rest or self._need or self._after_chunk or self._trailers
        return self._chunked and not self.complete and not open_ended

    def closed(self) -> None:
        """The connection has ended. BadResponseError when the response had not."""
        if self.status is not None and self._until_close:
            self.complete = True
        if not self.complete:
            raise BadResponseError(
                "the server closed the connection " + ("in the middle" if self.status else "at once")
            )

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        code = rest[:3]
        if not version.startswith(b"HTTP/1.") or not code.isdigit():
            raise BadResponseError(f"not an HTTP/1.1 response: {first[:60]!r}")
        if code.startswith(b"1"):
            return  # an interim response; the real one follows
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        self.status = int(code)
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        length = headers.get(b"content-length")
        if not self._chunked and length is None:
            self._until_close = True
        elif not self._chunked:
            if not (length or b"").isdigit():
                raise BadResponseError(f"a content length of {length!r}")
            self._need = int(length or b"0")
            self.complete = self._need == 0

    def _counted(self, data: bytes) -> bytes:
        body = data[: self._need]
        self._need -= len(body)
        self.complete = self._need == 0
        return body

    def _dechunk(self, data: bytes) -> bytes:
        parts = []
        at = 0
        while True:
            if self._need:
                part = data[at : at + self._need]
                parts.append(part)
                at += len(part)
                self._need -= len(part)
                if self._need:
                    break
                self._after_chunk = True
            end = data.find(b"\r\n", at)
            if end < 0:
                self._rest = data[at:]
                break
            line, at = data[at:end], end + 2
            if self._after_chunk:
                if line:
                    raise BadResponseError(f"a chunk is longer than it says: {line[:40]!r}")
                self._after_chunk = False
            elif self._trailers:
                if not line:
                    self.complete = True
                    break
            else:
                self._need = _chunk_size(line)
                self._trailers = self._need == 0
        return b"".join(parts)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not _HEX.fullmatch(digits):
        raise BadResponseError(f"not a chunk's size: {line[:40]!r}")
    return int(digits, 16)


def joined(spans: Iterable[Span]) -> bytes:
    """What they mean, copied into one."""
    return b"".join([data[start:stop] for data, start, stop in spans])
