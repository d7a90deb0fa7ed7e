"""A server that traces: answers `/generate` with a text of its own and writes pools as the plugin does.

The text of a prompt follows from the prompt alone; the draft's pool at a position follows from the text up to it.
Where the text goes on with the poison, the round commits two tokens and the next position gets no pool.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from actors.sglang_plugin.orders import TraceOrder
from results.failures import Failure
from results.observations import LaunchObservation
from results.pool_trace_file import pool_sizes, record_type
from search_spaces.config import EngineConfig

VOCABULARY = 24
PROMPT_TOKENS = 7


def text_of(prompt: str, tokens: int) -> list[int]:
    """The target's greedy output, without end, looping for prompts that begin with `loop`."""
    rng = np.random.default_rng(zlib.crc32(prompt.encode()))
    ids: list[int] = rng.integers(1, VOCABULARY, 400).tolist()
    return (ids[:3] * 200)[:tokens] if prompt.startswith("loop") else ids[:tokens]


class TracingServer:
    """A `TracingEngine`. `dies_after` requests it stops answering; `forgets` are positions it never writes.

    `refuse` gives the HTTP status for a request; 0 breaks the connection.
    """

    def __init__(
        self,
        *,
        dies_after: int | None = None,
        forgets: frozenset[int] = frozenset(),
        refuse: Callable[[dict[str, Any]], int] = lambda body: 200,
    ) -> None:
        self.refuse = refuse
        self.orders: list[TraceOrder] = []
        self.requests = 0
        self.most_at_once = 0
        self._running = 0
        self._dies_after, self._forgets = dies_after, forgets
        self._lock = threading.Lock()
        self._written: list[bytes] = []
        self._index: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.base_url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()

    def trace(self, config: EngineConfig, order: TraceOrder) -> LaunchObservation | Failure:
        assert config.triple is not None
        self.orders.append(order)
        self._steps, self._topk = config.triple.num_steps, config.triple.eagle_topk
        self._type = record_type(self._steps, self._topk)
        nodes, parents = pool_sizes(self._steps, self._topk)
        head = {"version": 1, "num_steps": self._steps, "eagle_topk": self._topk, "nodes": nodes, "parents": parents}
        self._written, self._index = [json.dumps(head).encode() + b"\n"], []
        self.flush()
        return LaunchObservation(
            command=(),
            engine_version="0.5.23",
            accelerator="none",
            stand_in_kernels=True,
            ready_s=0.0,
            pid=1,
            port=1,
            device_ids=(),
            effective_args={},
        )

    def failure_now(self) -> Failure | None:
        if self._dies_after is not None and self.requests > self._dies_after:
            return Failure(phase="measure", kind="crash", message="the server died")
        return None

    def flush(self) -> None:
        file = Path(self.orders[-1].file)
        file.write_bytes(b"".join(self._written))
        file.with_name(file.name + ".requests").write_text("".join(line + "\n" for line in self._index))

    def generate(self, body: dict[str, Any]) -> dict[str, Any] | None:
        with self._lock:
            self.requests += 1
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            if self.failure_now() is not None:
                return None
            assert body["sampling_params"]["temperature"] == 0
            ids = text_of(body["text"], body["sampling_params"]["max_new_tokens"])
            with self._lock:
                self._write(body["rid"], ids)
            return {"output_ids": ids, "meta_info": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(ids)}}
        finally:
            with self._lock:
                self._running -= 1

    def _write(self, rid: str, ids: list[int]) -> None:
        self._index.append(json.dumps({"index": len(self._index), "rid": rid}))
        at = 0
        while at < len(ids) - 1:
            position = PROMPT_TOKENS + at
            if position not in self._forgets:
                self._written.append(self._record(position, ids[: at + 1]))
            at += 2 if ids[at + 1] == self.orders[-1].poison_id else 1

    def _record(self, position: int, before: list[int]) -> bytes:
        rng = np.random.default_rng(zlib.crc32(bytes(before)))
        record = np.zeros(1, dtype=self._type)
        record["request"], record["position"] = len(self._index) - 1, position
        groups = [rng.permutation(VOCABULARY)[: self._topk] for _ in range(record["tokens"].shape[1] // self._topk)]
        record["tokens"] = np.concatenate(groups)
        record["scores"] = np.sort(rng.random(record["scores"].shape[1]).astype(np.float32))[::-1]
        if record["parents"].shape[1]:
            record["parents"] = np.arange(record["parents"].shape[1]) - 1
        return record.tobytes()


class Traceable(TracingServer):
    """A tracing server that is an engine as well."""

    closed = False

    def apply(self, config: EngineConfig) -> object:
        raise AssertionError("a trace does not measure")

    def log_tail(self, max_bytes: int = 65536) -> str:
        return "the log"

    def close(self) -> None:
        self.closed = True


def _handler(server: TracingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path == "/flush_cache":
                server.flush()
                self._answer(200, {})
                return
            status = server.refuse(json.loads(body))
            if status != 200:
                self.close_connection = True
                if status:
                    self._answer(status, {"error": "not this one"})
                return
            answer = server.generate(json.loads(body))
            self._answer(200 if answer else 500, answer or {"error": "gone"})

        def do_GET(self) -> None:
            self._answer(404, {})

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler
