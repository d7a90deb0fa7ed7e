"""The answer of SGLang's `/generate`, streamed: bytes in, arrival times and token counts out. Pure, no I/O.

Every event is one line `data: {json}` and the last is `data: [DONE]` (`srt/entrypoints/http_server.py`,
`serve_generate_request`). By default each event repeats the whole text and all output ids so far; with
`--incremental-streaming-output` it carries only what is new (`srt/managers/tokenizer_manager.py`). The counters of
speculation stand in the last event alone. Reading a cumulative event in full costs time proportional to the answer so
far, so only the number of tokens is picked out of the events in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from actors.load.http_response import Span
from actors.load.json_codec import decode_json

_FIELD = b"data: "
_TOKENS_KEY = b'"completion_tokens":'
_KEY_BYTES = len(_TOKENS_KEY)
# A JSON string cannot hold the key's bytes: its quotes would be escaped. So the last match is the real one.
_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')


class BrokenStreamError(Exception):
    """The bytes are not the protocol; one line."""


class GenerateStream:
    """Reads one streamed answer. Feed it what arrives, in order, with the time of arrival.

    `chunk_times_s` and `chunk_tokens` have one entry for every event that carried new tokens; events that were read at
    one moment share its time.
    """

    def __init__(self) -> None:
        self.chunk_times_s: list[float] = []
        self.chunk_tokens: list[int] = []
        self.done = False
        self.finished_s: float | None = None
        self._rest = b""
        self._tokens = 0
        self._digits = 0  # of the last event's number of tokens; 0 when the next bytes do not begin an event
        self._after = b""  # what stood behind them
        self._last: Span | None = None
        self._events = 0
        self._incremental: bool | None = None
        self._ids: list[int] = []

    def feed(self, data: bytes, now_s: float) -> None:
        """Take the bytes that arrived at `now_s`. BrokenStreamError when an event is not what SGLang sends."""
        self.feed_each([(data, 0, len(data))], [now_s])

    def feed_each(self, spans: Iterable[Span], times_s: Iterable[float]) -> None:
        """Take bytes after bytes, each with their time, as `feed` does; those before an error are taken."""
        for span, now_s in zip(spans, times_s, strict=True):
            data, start, stop = span
            end = stop - len(self._after)
            at = end - self._digits
            number = data[at:end]
            # what a stream consists of: one whole event, which ends as the last one did but for the number
            if (
                number.isdigit()
                and data[end:stop] == self._after
                and data[at - _KEY_BYTES : at] == _TOKENS_KEY
                and data[start : start + 6] == _FIELD
                and data.find(b"\n", start) == stop - 2
            ):
                self._count((data, start + 6, stop - 2), int(number), now_s)
            else:
                self._read_lines(data[start:stop], now_s)

    def final(self) -> dict[str, Any]:
        """The last event in full, with `output_ids` complete. BrokenStreamError when nothing or half of it came."""
        if self._last is None:
            raise BrokenStreamError("the stream ended before the first token")
        last = _decoded(self._last)
        if self._incremental:
            last["output_ids"] = self._ids
        return last

    def _read_lines(self, data: bytes, now_s: float) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now_s)
        if self._rest:
            self._digits = 0

    def _take(self, payload: bytes, now_s: float) -> None:
        if payload == b"[DONE]":
            self.done = True
            return
        at = payload.rfind(_TOKENS_KEY)
        found = _TOKENS.match(payload, at) if at >= 0 else None
        if found:
            self._digits, self._after = len(found[1]), payload[found.end() :] + b"\n\n"
        self._count((payload, 0, len(payload)), int(found[1]) if found else self._tokens, now_s)

    def _count(self, event: Span, tokens: int, now_s: float) -> None:
        self._last, self.finished_s = event, now_s
        if self._incremental is not False:
            self._collect_ids(event, tokens)
        # A retracted request may be reported with fewer tokens than before; they were delivered once already.
        if tokens > self._tokens:
            self.chunk_times_s.append(now_s)
            self.chunk_tokens.append(tokens - self._tokens)
            self._tokens = tokens

    def _collect_ids(self, event: Span, tokens: int) -> None:
        """Tell the two ways of streaming apart by the second event at the latest, and gather ids where needed."""
        ids = _decoded(event).get("output_ids") or []
        self._events += 1
        if self._incremental is None and self._events > 1:
            self._incremental = len(ids) != tokens
        self._ids.extend(ids)


def _decoded(event: Span) -> dict[str, Any]:
    data, start, stop = event
    payload = data[start:stop]
    try:
        value = decode_json(payload)
    except ValueError as error:
        raise BrokenStreamError(f"an event is not JSON: {payload[:80]!r}") from error
    if not isinstance(value, dict):
        raise BrokenStreamError(f"an event is not a JSON object: {payload[:80]!r}")
    return value
