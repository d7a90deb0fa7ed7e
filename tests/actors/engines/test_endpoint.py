"""The engine that owns nothing: it says what a running server is, and refuses what it is not."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

import pytest
from doubles.timed_answers import TimedPlan
from doubles.timed_server import TimedServer

from actors.engines.endpoint import Endpoint, RunningServer, runs
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import EnvironmentProblem, InputError

PLAN = TimedPlan(acceptance=(0.5,), num_draft_tokens=4)
RUNS = EngineConfig(layout=(0, 3, 7), triple=Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4), tp_size=1)


def test_what_it_runs_is_applied_without_a_launch() -> None:
    with TimedServer(PLAN) as server:
        engine = RunningServer(Endpoint(url=server.url + "/"), model_path="/models/double")
        with pytest.raises(RuntimeError):
            _ = engine.base_url
        launch = engine.apply(RUNS)
        assert isinstance(launch, LaunchObservation), launch
        assert engine.base_url == server.url
        assert (engine.failure_now(), engine.log_tail()) == (None, "")
        engine.close()
        engine.close()
        interrupted = engine.failure_now()
        assert interrupted is not None
        assert interrupted.kind == "interrupted"
        assert Endpoint(url=server.url).server_info()["version"] == "0.5.23"
    assert not launch.weights_loaded
    assert (launch.pid, launch.port, launch.engine_version) == (0, server.port, "0.5.23")
    assert launch.command[:3] == ("python", "-m", "sglang.launch_server")
    assert "s3cret" not in repr(launch) + repr(launch.effective_args) + " ".join(launch.command)
    assert launch.findings == ()


def test_another_model_on_the_server_is_a_finding() -> None:
    with TimedServer(PLAN) as server:
        launch = RunningServer(Endpoint(url=server.url), model_path="/models/other").apply(RUNS)
    assert isinstance(launch, LaunchObservation)
    assert launch.findings == ("the server serves models/double, the study names /models/other",)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (EngineConfig(layout=None, triple=None, tp_size=1), "asked for no speculation"),
        (
            EngineConfig(layout=(1,), triple=Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6), tp_size=1),
            "asked for (num_steps, eagle_topk, num_draft_tokens) = (5,1,6), the server runs",
        ),
        (EngineConfig(layout=RUNS.layout, triple=RUNS.triple, tp_size=2), "tp_size: asked for 2, the server runs 1"),
    ],
)
def test_what_it_does_not_run_is_a_failure(config: EngineConfig, words: str) -> None:
    with TimedServer(PLAN) as server:
        failure = RunningServer(Endpoint(url=server.url)).apply(config)
    assert isinstance(failure, Failure)
    assert (failure.phase, failure.kind) == ("verify", "mismatch")
    assert words in failure.message


def test_silence_is_trouble_that_the_setting_did_not_cause() -> None:
    failure = RunningServer(Endpoint(url="http://127.0.0.1:1")).apply(RUNS)
    assert isinstance(failure, Failure)
    assert failure.is_infrastructure


@pytest.mark.parametrize("key", ["s3cret\n", "s3\r\ncret", "s3cret\t", "s3crét"])
def test_a_key_that_cannot_be_sent_is_not_shown(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("THE_KEY", key)
    endpoint = Endpoint(url="http://127.0.0.1:1", api_key_env="THE_KEY")
    with pytest.raises(EnvironmentProblem, match="the API key in THE_KEY holds a line break or another") as problem:
        endpoint.server_info()
    failure = RunningServer(endpoint).apply(RUNS)
    assert isinstance(failure, Failure)
    assert not any(part in str(problem.value) + failure.message for part in ("s3c", "s3\\", "cret"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"detail": "ok"}', "its /server_info names no model_path"),
        (b'{"vllm_config": "model=\'m\'"}', "its /server_info names no model_path"),
        (b'["a"]', "its /server_info names no model_path"),
        (b"<!doctype html><title>hello</title>", "its /server_info is not JSON"),
        (b"\xff\xfe", "its /server_info is not JSON"),
    ],
)
def test_somebody_else_who_answers_is_not_taken_for_sglang(content: bytes, words: str) -> None:
    with answering(200, content) as url, pytest.raises(EnvironmentProblem) as problem:
        Endpoint(url=url).server_info()
    assert f"{url} answers, but is not an SGLang server: {words}" in str(problem.value)


def test_a_redirect_is_not_followed_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "s3cret")
    with (
        TimedServer(PLAN) as other,
        answering(302, b"", location=other.url + "/server_info") as url,
        pytest.raises(EnvironmentProblem, match=f"redirects to {other.url}/server_info; name the server"),
    ):
        Endpoint(url=url, api_key_env="THE_KEY").server_info()


def test_bytes_that_are_no_http_are_said() -> None:
    with answering(-1, b"SSH-2.0-OpenSSH\r\n") as url, pytest.raises(EnvironmentProblem, match="nothing usable"):
        Endpoint(url=url).server_info()


@contextlib.contextmanager
def answering(status: int, content: bytes, location: str | None = None) -> Iterator[str]:
    """A server that says the same to every GET; bytes that are no HTTP with status -1."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status < 0:
                self.wfile.write(content)
                return
            self.send_response(status)
            if location is not None:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


def test_the_key_is_named_but_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "s3cret")
    with TimedServer(TimedPlan(api_key="s3cret")) as server:
        endpoint = Endpoint(url=server.url, api_key_env="THE_KEY")
        assert endpoint.server_info()["tp_size"] == 1
        assert "s3cret" not in repr(endpoint)
        with pytest.raises(EnvironmentProblem, match="it wants an API key"):
            Endpoint(url=server.url).server_info()


@pytest.mark.parametrize("url", ["", "x", "http://", "http://h:port", "http://h/v1", "http://u:p@h", "http://h /"])
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(InputError):
        Endpoint(url=url)


def test_speculation_without_numbers_cannot_be_read() -> None:
    assert runs({"tp_size": 4}) == (None, 4)
    with pytest.raises(EnvironmentProblem, match="without naming its triple"):
        runs({"speculative_algorithm": "NGRAM"})
