"""The answer of SGLang's `/generate`, streamed: bytes in, arrival times and token counts out. Pure, no I/O.

Every event is one line `data: {json}` and the last is `data: [DONE]` (`srt/entrypoints/http_server.py`,
`serve_generate_request`). By default each event repeats the whole text and all output ids so far; with
`--incremental-streaming-output` it carries only what is new (`srt/managers/tokenizer_manager.py`). The counters of
speculation stand in the last event alone. Reading a cumulative event in full costs time proportional to the answer so
far, so only the number of tokens is picked out of the events in the middle.
"""

from __future__ import annotations

import re
from typing import Any

from actors.load.json_codec import decode_json

_TOKENS_KEY = b'"completion_tokens":'
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
        self._last = b""
        self._events = 0
        self._incremental: bool | None = None
        self._ids: list[int] = []

    def feed(self, data: bytes, now_s: float) -> None:
        """Take the bytes that arrived at `now_s`. BrokenStreamError when an event is not what SGLang sends."""
        if not self._rest and data.startswith(b"data: ") and data.find(b"\n") == len(data) - 2:
            self._take(data[6:-2], now_s)  # what a stream consists of: one whole event
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now_s)

    def final(self) -> dict[str, Any]:
        """The last event in full, with `output_ids` complete. BrokenStreamError when nothing or half of it came."""
        if not self._last:
            raise BrokenStreamError("the stream ended before the first token")
        last = _decoded(self._last)
        if self._incremental:
            last["output_ids"] = self._ids
        return last

    def _take(self, payload: bytes, now_s: float) -> None:
        if payload == b"[DONE]":
            self.done = True
            return
        at = payload.rfind(_TOKENS_KEY)
        found = _TOKENS.match(payload, at) if at >= 0 else None
        tokens = int(found[1]) if found else self._tokens
        self._last, self.finished_s = payload, now_s
        self._events += 1
        if self._incremental is not False:
            self._collect_ids(payload, tokens)
        # A retracted request may be reported with fewer tokens than before; they were delivered once already.
        if tokens > self._tokens:
            self.chunk_times_s.append(now_s)
            self.chunk_tokens.append(tokens - self._tokens)
            self._tokens = tokens

    def _collect_ids(self, payload: bytes, tokens: int) -> None:
        """Tell the two ways of streaming apart by the second event at the latest, and gather ids where needed."""
        ids = _decoded(payload).get("output_ids") or []
        if self._incremental is None and self._events > 1:
            self._incremental = len(ids) != tokens
        self._ids.extend(ids)


def _decoded(payload: bytes) -> dict[str, Any]:
    try:
        event = decode_json(payload)
    except ValueError as error:
        raise BrokenStreamError(f"an event is not JSON: {payload[:80]!r}") from error
    if not isinstance(event, dict):
        raise BrokenStreamError(f"an event is not a JSON object: {payload[:80]!r}")
    return event
