"""The engine that owns nothing: it says what a running server is, and refuses what it is not."""

from __future__ import annotations

import pytest
from doubles.timed_server import TimedPlan, TimedServer

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
