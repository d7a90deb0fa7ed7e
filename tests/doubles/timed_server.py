"""A stand-in for an SGLang server whose every number is known: TTFT, step time, chunking, acceptance, and its faults.

It speaks the parts of the protocol that the client uses: `/generate` (streamed cumulatively, incrementally, or whole),
`/flush_cache`, `/v1/loads`, `/v1/models`, `/server_info`, `/metrics`, `/health`. In a process of its own:
`python tests/doubles/timed_server.py '{"ttft_s": 0.05}'` prints `{"port": ...}` when it listens.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from doubles.timed_answers import Answer, Script, TimedPlan, script_of


@dataclass(kw_only=True)
class Seen:
    """What the server has seen and counted since its start.

    `times_s` has for each prompt when its request arrived and each event was written (`time.monotonic`): what the
    server really did on a busy machine, where the plan only says when it was due.
    """

    requests: list[dict[str, object]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    flushes: int = 0
    tokens: int = 0
    verify_steps: int = 0
    cached: set[str] = field(default_factory=set)
    times_s: dict[str, list[float]] = field(default_factory=dict)


class _Connection(web.RequestHandler):
    """Knows when its request arrived: of sixteen that come at once, the last is read milliseconds later."""

    arrived_s: float | None = None

    def data_received(self, data: bytes) -> None:
        if self.arrived_s is None:
            self.arrived_s = time.monotonic()
        super().data_received(data)


class TimedServer:
    """Runs the double in a thread. `with TimedServer(plan) as server: server.url`. `kill()` cuts every connection."""

    def __init__(self, plan: TimedPlan) -> None:
        self.plan = plan
        self.seen = Seen()
        self.dead = threading.Event()
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failures: Iterator[int | str] = iter(plan.fail_first)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> TimedServer:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Stop listening and cut every connection, as a killed process does; returns when done."""
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.serve())
        self._loop.close()

    async def serve(self, on_port: object = None) -> None:
        """Serve until `kill`."""
        self._stop = asyncio.Event()
        app = web.Application(middlewares=[self._authorise])
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/flush_cache", self._flush)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_get("/health", self._health)
        app.router.add_get("/times", self._times)
        app.router.add_get("/v1/models", self._models)
        if self.plan.loads:
            app.router.add_get("/v1/loads", self._loads)
        if self.plan.metrics:
            app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        await runner.setup()
        server, loop = runner.server, asyncio.get_running_loop()
        assert server is not None
        listener = await loop.create_server(lambda: _Connection(server, loop=loop, access_log=None), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        if callable(on_port):
            on_port(self.port)
        self._up.set()
        await self._stop.wait()
        self.dead.set()
        listener.close()
        for connection in list(server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    @web.middleware
    async def _authorise(self, request: web.Request, handler: object) -> web.StreamResponse:
        if self.plan.api_key and request.headers.get("Authorization") != f"Bearer {self.plan.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)  # type: ignore[operator, no-any-return]

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _Connection)
        assert connection.arrived_s is not None
        start_s = connection.arrived_s
        body = await request.json()
        self.seen.requests.append(body)
        if self.plan.die_after_requests is not None and len(self.seen.requests) > self.plan.die_after_requests:
            self._stop.set()
            await asyncio.sleep(60)
        self.seen.running += 1
        self.seen.most_running = max(self.seen.most_running, self.seen.running)
        try:
            return await self._answer(request, body, start_s, self.plan.fail_all or next(self._failures, None))
        finally:
            self.seen.running -= 1
            connection.arrived_s = None

    async def _answer(
        self, request: web.Request, body: dict[str, Any], start_s: float, fault: int | str | None
    ) -> web.StreamResponse:
        if isinstance(fault, int):
            return web.json_response({"error": {"message": f"fault\n{fault}"}}, status=fault)
        if fault == "hang":
            await asyncio.sleep(3600)
        text = body["text"]
        script = script_of(self.plan, text, body["sampling_params"]["max_new_tokens"])
        cached = len(text.split()) - 1 if text in self.seen.cached else 0
        answer = Answer(self.plan, text, script, cached, fault=fault)
        if body["stream"]:
            return await self._stream(request, answer, start_s)
        self.seen.times_s[text] = [start_s]
        for _, due_s in answer.schedule(start_s):
            await _until(due_s)
        self._finish(text, script)
        self.seen.times_s[text].append(time.monotonic())
        return web.Response(body=answer.event(0, script.tokens), content_type="application/json")

    async def _stream(self, request: web.Request, answer: Answer, start_s: float) -> web.StreamResponse:
        times_s = self.seen.times_s[answer.text] = [start_s]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        sent = 0
        for commit, due_s in answer.schedule(start_s):
            await _until(due_s)
            if sent + commit == answer.script.tokens:
                self._finish(answer.text, answer.script)
            event = answer.event(sent if self.plan.incremental else 0, sent + commit)
            sent += commit
            times_s.append(time.monotonic())
            await response.write(b"data: " + event + b"\n\n")
            if answer.fault == "garbage":
                await response.write(b'data: {"text": "half\n\n')
            if answer.fault == "drop" and request.transport is not None:
                request.transport.abort()
            if answer.fault in ("cut", "drop"):
                return response
        await response.write(b"data: [DONE]\n\n")
        return response

    def _finish(self, text: str, script: Script) -> None:
        self.seen.cached.add(text)
        self.seen.tokens += script.tokens
        self.seen.verify_steps += len(script.accepted) if self.plan.speculative else 0

    async def _flush(self, request: web.Request) -> web.Response:
        if self.plan.flush_status is not None:
            return web.Response(text="no", status=self.plan.flush_status)
        self.seen.flushes += 1
        if self.seen.running or self.seen.flushes <= self.plan.flush_refusals:
            return web.Response(text="Flush cache failed.\n", status=400)
        self.seen.cached.clear()
        return web.Response(text="Cache flushed.\n")

    async def _loads(self, request: web.Request) -> web.Response:
        running = self.seen.running + self.plan.foreign_requests
        return web.json_response({"loads": [{"dp_rank": 0, "num_running_reqs": running, "num_waiting_reqs": 0}]})

    async def _server_info(self, request: web.Request) -> web.Response:
        state: dict[str, object] = {"last_gen_throughput": 812.0}
        if self.plan.average_accept_length is not None:
            state["avg_spec_accept_length"] = self.plan.average_accept_length
        info: dict[str, object] = {"model_path": "models/double", "tp_size": 1, "speculative_algorithm": None}
        if self.plan.speculative:
            info |= {"speculative_algorithm": "EAGLE3", "speculative_num_steps": self.plan.num_draft_tokens - 1}
            info |= {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": self.plan.num_draft_tokens}
        info |= {"internal_states": [state], "version": "0.5.23", "device": "cpu"}
        info |= {"launch_command": "python -m sglang.launch_server --api-key s3cret"}
        return web.json_response(info)

    async def _metrics(self, request: web.Request) -> web.Response:
        labels = 'model_name="double",is_streaming="true"'
        lines = [
            "# HELP sglang:generation_tokens_total Number of generation tokens.",
            "# TYPE sglang:generation_tokens_total counter",
            f"sglang:generation_tokens_total{{{labels}}} {float(self.seen.tokens)}",
            'sglang:num_running_reqs{model_name="double"} 0.0',
        ]
        if self.seen.verify_steps:
            lines.append(f'sglang:spec_verify_calls_total{{model_name="double"}} {float(self.seen.verify_steps)}')
        return web.Response(text="\n".join(lines) + "\n")

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "double", "object": "model"}]})

    async def _times(self, request: web.Request) -> web.Response:
        """`Seen.times_s` as it is now, for whoever is in another process."""
        return web.json_response(self.seen.times_s)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")


async def _until(due_s: float) -> None:
    await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))


def main(plan: str) -> None:
    """Serve in this process until it is ended; the plan is JSON with `TimedPlan`'s fields."""
    given = json.loads(plan)
    fields = {f.name for f in dataclasses.fields(TimedPlan)}
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if key in fields}
    server = TimedServer(TimedPlan(**values))
    asyncio.run(server.serve(lambda port: print(json.dumps({"port": port}), flush=True)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "{}")
