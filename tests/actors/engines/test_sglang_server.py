"""The engine's life with a stand-in server: every way of failing is a recorded failure, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server_specs import baseline, fake_spec, speculative
from tiny_models import TinyPair

from actors.engines.guarded_process import find_leftovers
from actors.engines.ports import NoFreePortError, lease_ports
from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from actors.load.http_post import Address
from results.failures import Failure
from results.observations import LaunchObservation


class Bench:
    """Makes engines and checks at the end that nothing of them is left."""

    def __init__(self, pair: TinyPair, folder: Path, start_method: str) -> None:
        self.pair, self.folder, self.start_method = pair, folder, start_method
        self.engines: list[tuple[SglangServer, ServerSpec]] = []

    def engine(self, plan: dict[str, Any] | None = None, **changes: Any) -> SglangServer:
        changes.setdefault("start_method", self.start_method)
        spec = fake_spec(self.pair, self.folder / f"engine-{len(self.engines)}", plan, **changes)
        engine = SglangServer(spec)
        self.engines.append((engine, spec))
        return engine

    def leftovers(self) -> list[int]:
        """Processes of our engines, but for the fork server and its guard while the engine is open."""
        found = {process for _, spec in self.engines for process in find_leftovers(spec.owner)}
        forks = [engine._forks for engine, _ in self.engines if engine._forks is not None and not engine._closed]
        return [pid for pid, _ in found - {process for fork in forks for process in fork.process.identities}]


both_ways = pytest.mark.parametrize("bench", ["spawn", "fork"], indirect=True)
forked = pytest.mark.parametrize("bench", ["fork"], indirect=True)


@pytest.fixture
def bench(
    request: pytest.FixtureRequest, tiny_pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    made = Bench(tiny_pair, tmp_path, getattr(request, "param", "spawn"))
    yield made
    for engine, _ in made.engines:
        engine.close()
    assert made.leftovers() == []
    assert list(scratch.iterdir()) == []


def launched(outcome: LaunchObservation | Failure) -> LaunchObservation:
    assert isinstance(outcome, LaunchObservation), outcome
    return outcome


def failed(outcome: LaunchObservation | Failure | None) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


def launches(path: Path) -> list[list[str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ask(engine: SglangServer, tokens: int = 4) -> dict[str, Any]:
    body = json.dumps({"text": "hello", "sampling_params": {"max_new_tokens": tokens}}).encode()
    with urllib.request.urlopen(engine.base_url + "/generate", body, timeout=10) as answer:
        content: dict[str, Any] = json.load(answer)
    return content


def eventually_failed(engine: SglangServer) -> Failure:
    deadline = time.monotonic() + 10
    while (failure := engine.failure_now()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return failure


@both_ways
def test_the_same_configuration_keeps_the_server_and_another_relaunches(bench: Bench, tmp_path: Path) -> None:
    counts = tmp_path / "launches"
    engine = bench.engine({"count_file": str(counts), "grandchildren": True})
    first = launched(engine.apply(speculative(3, 4, 8)))
    assert launched(engine.apply(speculative(3, 4, 8))) == replace(first, weights_loaded=False)
    assert ask(engine)["meta_info"]["spec_verify_ct"] >= 1
    # every server is measured in the state that SGLang's own warm-up would leave it in, by luck only without one
    assert engine.log_tail().count("garbage collection frozen") == 1
    second = launched(engine.apply(speculative(3, 1, 4)))
    third = launched(engine.apply(baseline()))
    assert len({first.pid, second.pid, third.pid}) == 3
    assert len(launches(counts)) == 3
    assert third.effective_args["speculative_algorithm"] is None
    assert "spec_verify_ct" not in ask(engine)["meta_info"]
    engine.close()
    assert bench.leftovers() == []


def test_whoever_loads_an_engine_while_it_is_closed_learns_that_it_was(bench: Bench) -> None:
    engine = bench.engine()
    with pytest.raises(RuntimeError, match="no server was started"):
        engine.base_url  # noqa: B018
    launched(engine.apply(baseline()))
    before = engine.base_url
    assert engine.failure_now() is None
    engine.close()
    assert engine.base_url == before
    interrupted = engine.failure_now()
    assert interrupted is not None
    assert interrupted.kind == "interrupted"


def test_the_observation_says_what_was_run(bench: Bench) -> None:
    observation = launched(bench.engine(args={"context_length": 512}).apply(speculative(3, 4, 8, layout=(0, 3, 7))))
    command = list(observation.command)
    assert command[command.index("--context-length") + 1] == "512"
    draft_config = Path(command[command.index("--decrypted-draft-config-file") + 1])
    ids = json.loads(draft_config.read_text())["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert ids == [-1, 2, 6]
    assert observation.engine_version == "0.5.23"
    assert observation.accelerator == "cpu"
    assert not observation.stand_in_kernels
    assert observation.effective_args["port"] == observation.port
    assert "internal_states" not in observation.effective_args
    assert 0 < observation.ready_s < 60


@both_ways
def test_a_server_that_never_gets_ready_is_a_timeout(bench: Bench) -> None:
    engine = bench.engine({"mode": "never_ready", "grandchildren": True}, ready_timeout_s=1.0)
    failure = failed(engine.apply(speculative(3, 4, 8)))
    assert (failure.phase, failure.kind) == ("ready", "timeout")
    assert re.search(r"not ready after \d+ s", failure.message)
    assert "GET /health" in failure.log_tail
    assert bench.leftovers() == []


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "oom"),
        ("ValueError: page size 7 is not supported", "bad_config"),
        ("Segmentation fault (core dumped)", "crash"),
        ("ModuleNotFoundError: No module named 'sglang'", "no_engine"),
    ],
)
def test_a_server_that_dies_at_start_is_classified_by_its_log(bench: Bench, log: str, kind: str) -> None:
    engine = bench.engine({"mode": "die_at_start", "log": log})
    failure = failed(engine.apply(speculative(3, 4, 8)))
    assert (failure.phase, failure.kind) == ("ready", kind)
    assert log in failure.message
    assert log in failure.log_tail
    assert log in engine.log_tail()
    assert engine.failure_now() is None  # it is gone, and has been told


@both_ways
def test_a_server_that_dies_while_serving_is_noticed(bench: Bench) -> None:
    engine = bench.engine({"mode": "die_after", "after_requests": 1, "exit_code": 3, "grandchildren": True})
    launched(engine.apply(speculative(3, 4, 8)))
    ask(engine)
    assert engine.failure_now() is None
    with pytest.raises(OSError):  # noqa: PT011 - whichever kind of broken connection
        ask(engine)
    failure = eventually_failed(engine)
    assert (failure.phase, failure.kind) == ("measure", "crash")
    assert "exit code 3" in failure.message


@both_ways
def test_a_killed_server_is_a_crash_and_the_next_apply_starts_anew(bench: Bench) -> None:
    engine = bench.engine({"grandchildren": True})
    first = launched(engine.apply(baseline()))
    os.kill(first.pid, signal.SIGKILL)
    failure = eventually_failed(engine)
    assert failure.kind == "crash"
    assert "SIGKILL" in failure.message
    assert launched(engine.apply(baseline())).pid != first.pid
    assert engine.failure_now() is None


@both_ways
def test_a_killed_guard_takes_the_server_with_it_and_the_engine_mends_the_rest(bench: Bench) -> None:
    engine = bench.engine({"grandchildren": True})
    launched(engine.apply(baseline()))
    running = engine._running
    assert running is not None
    os.kill(running.process.guard_pid, signal.SIGKILL)
    assert eventually_failed(engine).kind == "crash"
    assert len(bench.leftovers()) == 2
    launched(engine.apply(baseline()))
    assert len(bench.leftovers()) == 4  # guard, server and two new sleepers


@forked
def test_a_killed_fork_server_takes_the_server_with_it_and_is_started_again(bench: Bench) -> None:
    engine = bench.engine({"grandchildren": True})
    launched(engine.apply(baseline()))
    assert engine._forks is not None
    os.kill(engine._forks.process.pid, signal.SIGKILL)
    assert eventually_failed(engine).kind == "crash"
    launched(engine.apply(baseline()))
    assert len(bench.leftovers()) == 4


@both_ways
def test_what_a_killed_predecessor_left_is_ended_before_anything_starts(bench: Bench) -> None:
    first = bench.engine({"grandchildren": True})
    pid = launched(first.apply(baseline())).pid
    spec = bench.engines[0][1]
    bench.engines.append((SglangServer(spec), spec))
    assert pid not in bench.leftovers()


def test_a_port_taken_meanwhile_is_tried_elsewhere(bench: Bench, tmp_path: Path) -> None:
    counts = tmp_path / "launches"
    plan = {
        "mode": "port_in_use_once",
        "marker": str(tmp_path / "marker"),
        "log": "[Errno 98] address already in use",
        "count_file": str(counts),
    }
    launched(bench.engine(plan).apply(baseline()))
    ports = [words[words.index("--port") + 1] for words in launches(counts)]
    assert len(set(ports)) == 2


def test_ports_are_tried_a_bounded_number_of_times(bench: Bench, tmp_path: Path) -> None:
    counts = tmp_path / "launches"
    plan = {"mode": "die_at_start", "log": "[Errno 98] address already in use", "count_file": str(counts)}
    failure = failed(bench.engine(plan, port_attempts=2).apply(baseline()))
    assert failure.kind == "port_in_use"
    assert failure.is_infrastructure
    assert len(launches(counts)) == 2


def test_a_port_the_user_insists_on(bench: Bench) -> None:
    lease = lease_ports()
    refused = failed(bench.engine(port=lease.http).apply(baseline()))
    assert (refused.phase, refused.kind) == ("launch", "port_in_use")
    assert str(lease.http) in refused.message
    lease.release()
    assert launched(bench.engine(port=lease.http).apply(baseline())).port == lease.http


@pytest.mark.skipif(not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_a_server_on_an_ipv6_address_is_reached(bench: Bench) -> None:
    engine = bench.engine(host="::1")
    port = launched(engine.apply(baseline())).port
    assert engine.base_url == f"http://[::1]:{port}"
    assert ask(engine)["meta_info"]["completion_tokens"] == 4
    assert Address.of(engine.base_url).host == "::1"


@both_ways
@pytest.mark.parametrize(
    ("broken", "problem", "kind"),
    [
        ("sglang_server.lease_ports", NoFreePortError("no free port"), "port_in_use"),
        ("sglang_server.lease_ports", OSError(24, "Too many open files"), "machine"),
        ("sglang_server.build_environment", OSError(28, "No space left on device"), "machine"),
        ("sglang_server.tempfile.mkdtemp", OSError(28, "No space left on device"), "machine"),
        ("guarded_process.GuardedProcess.start", RuntimeError("the process guard\ndid not start"), "machine"),
    ],
)
def test_a_machine_at_its_limits_fails_the_start_and_keeps_the_actor(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, broken: str, problem: Exception, kind: str
) -> None:
    def raising(*_: Any, **__: Any) -> Any:
        raise problem

    engine = bench.engine()
    with monkeypatch.context() as patched:
        patched.setattr(f"actors.engines.{broken}", raising)
        failure = failed(engine.apply(baseline()))
    assert (failure.phase, failure.kind) == ("launch", kind)
    assert failure.is_infrastructure


@pytest.mark.parametrize(
    ("override", "said"),
    [({"speculative_num_draft_tokens": 4}, "(3,4,4)"), ({"tp_size": 2}, "tp_size: asked for 1, the server runs 2")],
)
def test_a_server_that_runs_something_else_is_a_mismatch(bench: Bench, override: dict[str, Any], said: str) -> None:
    failure = failed(bench.engine({"override": override}).apply(speculative(3, 4, 8)))
    assert (failure.phase, failure.kind) == ("verify", "mismatch")
    assert said in failure.message
    assert bench.leftovers() == []


def test_a_stranger_on_the_port_is_no_server_of_ours(bench: Bench) -> None:
    failure = failed(bench.engine({"override": {"nccl_port": 4711}}, port_attempts=1).apply(baseline()))
    assert failure.kind == "port_in_use"


def test_a_layout_that_cannot_be_written_starts_nothing(bench: Bench) -> None:
    failure = failed(bench.engine().apply(speculative(3, 4, 8, layout=(2, 4, 8))))
    assert (failure.phase, failure.kind) == ("launch", "bad_config")
    assert "tap 8" in failure.message


def test_more_workers_than_slots_start_nothing(bench: Bench) -> None:
    failure = failed(bench.engine(device_ids=("slot-0",)).apply(baseline(tp_size=2)))
    assert (failure.phase, failure.kind) == ("placement", "bad_config")


def test_simulated_acceptance_is_refused_or_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = {"SGLANG_SIMULATE_ACC_LEN": "3.24"}
    assert failed(bench.engine(environment=simulated).apply(baseline())).kind == "simulated"
    allowed = launched(bench.engine(environment=simulated, allow_simulated=True).apply(baseline()))
    assert any("acceptance is simulated (SGLANG_SIMULATE_ACC_LEN=3.24)" in finding for finding in allowed.findings)
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3.24")
    inherited = failed(bench.engine().apply(baseline()))
    assert inherited.kind == "simulated"
    assert "simulated acceptance is on" in inherited.message


@both_ways
def test_close_from_another_thread_interrupts_a_start(bench: Bench) -> None:
    engine = bench.engine({"mode": "never_ready", "grandchildren": True}, ready_timeout_s=60.0)
    threading.Timer(0.7, engine.close).start()
    started = time.monotonic()
    assert failed(engine.apply(baseline())).kind == "interrupted"
    assert time.monotonic() - started < 5
    assert bench.leftovers() == []
    assert failed(engine.apply(baseline())).kind == "interrupted"


def test_a_missing_interpreter_is_no_engine(bench: Bench, tmp_path: Path) -> None:
    failure = failed(bench.engine(python=str(tmp_path / "nothing")).apply(baseline()))
    assert failure.kind == "no_engine"
    assert "cannot start" in failure.message


def test_an_engine_without_a_server_is_quiet(bench: Bench) -> None:
    engine = bench.engine()
    assert engine.failure_now() is None
    assert engine.log_tail() == ""
    engine.close()
    engine.close()
