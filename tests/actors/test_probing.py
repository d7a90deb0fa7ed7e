"""Driving a probe: short prompts first, one file a rank, failures named, and the engine that a group needs for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trial_builders import WORKLOAD, config, launch

from actors.job import TrialJob
from actors.load.workload import prompt_of
from actors.probing import MAX_TAP_BYTES, can_probe, probe_tokens, run_probe
from actors.sglang_plugin.orders import ProbeOrder
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig

TEXTS = ("a longer prompt than the others", "short", "middle one")
JOB = TrialJob(
    trial_id="probe",
    config=config(tp_size=2),
    workload=replace(WORKLOAD, prompts=tuple(prompt_of(text) for text in TEXTS)),
    probe_tokens=12,
)


class ProbedServer:
    """Answers prompts, six tokens each; a flush writes what the ranks recorded."""

    def __init__(self, ranks: int, status: int = 200) -> None:
        self.ranks, self.status = ranks, status
        self.order: ProbeOrder | None = None
        self.asked: list[str] = []
        self.flushed_before: list[int] = []
        self.flushes = 0
        self.busy = 2
        self.closed = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        if self.order is None:
            raise RuntimeError("no server runs")
        return f"http://127.0.0.1:{self._http.server_port}"

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        raise AssertionError("a probe is no trial")

    def probe(self, config: EngineConfig, order: ProbeOrder) -> LaunchObservation | Failure:
        self.order = order
        return launch()

    def failure_now(self) -> Failure | None:
        return None

    def log_tail(self, max_bytes: int = 65536) -> str:
        return "the log"

    def close(self) -> None:
        self.closed += 1

    def shut(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def flush(self) -> None:
        assert self.order is not None
        for rank in range(self.ranks):
            tokens = 6 * len(self.asked)
            path = Path(f"{self.order.prefix}.{rank}.npz")
            if rank == 1 and len(self.asked) == 2:
                # the last flush is answered before this rank has written; its file is still that of the first prompt
                threading.Timer(0.3, write, (path, tokens, rank)).start()
            else:
                write(path, tokens, rank)


def write(path: Path, tokens: int, rank: int) -> None:
    fresh = path.with_suffix(".part.npz")
    np.savez(fresh, fed=np.full((tokens, 4), rank), taps=np.zeros((2, tokens, 2)), input_ids=np.arange(tokens))
    fresh.replace(path)


def _handler(server: ProbedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status = server.status
            if self.path == "/flush_cache":
                server.flushes += 1
                status = 400 if server.flushes <= server.busy else server.status
                server.flush()
            else:
                content = json.loads(body)
                assert content["rid"].startswith("specsweep-probe-")
                server.flushed_before.append(server.flushes)
                assert content["sampling_params"]["temperature"] == 0
                server.asked.append(content["text"])
            data = json.dumps({"meta_info": {"prompt_tokens": 6}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return Handler


@pytest.fixture
def servers() -> Iterator[list[ProbedServer]]:
    made: list[ProbedServer] = []
    yield made
    for server in made:
        server.shut()


def test_short_prompts_are_sent_until_there_are_enough_tokens(servers: list[ProbedServer]) -> None:
    servers.append(server := ProbedServer(2))
    outcome = run_probe(server, JOB, 12)
    assert outcome.failure is None
    assert server.asked == ["short", "middle one"]
    # refused twice at first, then once before every prompt and once to have the files
    assert server.flushed_before == [3, 4]
    assert server.flushes == 5
    assert [(feed.rank, feed.fed.shape, float(feed.fed.max())) for feed in outcome.feeds] == [
        (0, (12, 4), 0.0),
        (1, (12, 4), 1.0),
    ]
    assert outcome.cells == ()
    assert server.order is not None
    assert not Path(server.order.prefix).parent.exists()
    assert server.closed == 0


def test_a_rank_that_records_nothing_is_named(servers: list[ProbedServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.probing.FILE_TIMEOUT_S", 0.2)
    servers.append(server := ProbedServer(1))
    outcome = run_probe(server, JOB, 12)
    assert outcome.failure is not None
    assert outcome.failure.message.startswith("rank 1 of 2 recorded nothing")
    assert (outcome.feeds, server.closed) == ((), 1)


def test_a_refused_request_is_the_failure(servers: list[ProbedServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.probing.FILE_TIMEOUT_S", 0.2)
    servers.append(server := ProbedServer(2, status=500))
    outcome = run_probe(server, JOB, 12)
    assert outcome.failure is not None
    assert "HTTP 500" in outcome.failure.message
    assert server.closed == 1


def test_an_engine_without_a_server_can_still_be_recognised(servers: list[ProbedServer]) -> None:
    servers.append(server := ProbedServer(1))
    assert can_probe(server)
    assert not can_probe(None)


def test_large_models_record_fewer_tokens() -> None:
    assert probe_tokens(8, 64) == 64
    large = probe_tokens(80, 8192)
    assert 8 <= large < 64
    assert large * 80 * 8192 * 4 <= MAX_TAP_BYTES
    assert probe_tokens(10_000, 8192) == 8
