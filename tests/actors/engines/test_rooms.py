"""A server is switched only between settings that SGLang would launch alike. The engine is the stand-in, "on CUDA"."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_specs import baseline, fake_spec, speculative
from tiny_models import TinyPair

from actors.engines.guarded_process import find_leftovers
from actors.engines.preflight import Resolution, ask_engine
from actors.engines.rooms import Rooms
from actors.engines.server_spec import ServerSpec
from actors.engines.switching_server import SwitchingServer
from actors.sglang_plugin.orders import TraceOrder
from results.observations import LaunchObservation
from search_spaces.config import Triple
from search_spaces.errors import EnvironmentProblem

POOLS = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)
CHAINS = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
CHAIN, SHORT_CHAIN, TREE, LARGEST = (speculative(*n) for n in ((3, 1, 4), (1, 1, 2), (3, 4, 8), (5, 4, 16)))
SHALLOW_TREE, CHAINS_ROOM = speculative(1, 4, 4), speculative(5, 1, 6)
HOPPER = ["fa3", "flashinfer"]
WHY = "with room for (5,4,16) SGLang would run attention_backend flashinfer instead of fa3"


@pytest.fixture
def spec(tiny_pair: TinyPair, tmp_path: Path) -> Callable[..., ServerSpec]:
    def made(backends: list[str] = HOPPER, **changes: Any) -> ServerSpec:
        plan = {"on_order": "obey", "backends": backends, "questions": str(tmp_path / "questions")}
        plan |= {"count_file": str(tmp_path / "starts")}
        values: dict[str, Any] = {"device": "cuda", "device_ids": ("3",), "ready_timeout_s": 60.0}
        return fake_spec(tiny_pair, tmp_path / "work", plan, **values | changes)

    return made


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def applied(server: SwitchingServer, *numbers: Any) -> list[LaunchObservation]:
    try:
        seen = [server.apply(config) for config in numbers]
    finally:
        server.close()
    assert all(isinstance(one, LaunchObservation) for one in seen), seen
    return [one for one in seen if isinstance(one, LaunchObservation)]


def test_every_setting_runs_on_the_backend_of_its_own_launch(spec: Any, tmp_path: Path) -> None:
    order = (LARGEST, CHAIN, SHORT_CHAIN, TREE, LARGEST)
    seen = applied(SwitchingServer(spec(), pools=POOLS), *order)
    assert [one.effective_args["attention_backend"] for one in seen] == ["flashinfer", "fa3", "fa3"] + 2 * [
        "flashinfer"
    ]
    assert [one.weights_loaded for one in seen] == [True, True, False, True, False]
    assert len(lines(tmp_path / "starts")) == 3
    # chains have a room of their own, and the record says why
    assert [one.pools for one in seen[1:4]] == [CHAINS, CHAINS, POOLS]
    told = [[finding for finding in one.findings if finding.startswith("launched")] for one in seen]
    assert told == [[], [f"launched with less room: {WHY}"], [], [], []]


@pytest.mark.parametrize("given", [True, False], ids=["given", "the same for all"])
def test_one_launch_where_the_triple_decides_nothing(spec: Any, tmp_path: Path, given: bool) -> None:
    made = spec(args={"attention_backend": "triton"}) if given else spec(["triton", "triton"])
    seen = applied(SwitchingServer(made, pools=POOLS), CHAIN, TREE, SHORT_CHAIN)
    assert len(lines(tmp_path / "starts")) == 1
    assert {one.effective_args["attention_backend"] for one in seen} == {"triton"}


def test_one_server_is_traced_at_every_topk_and_measures_where_it_may(spec: Any, tmp_path: Path) -> None:
    server = SwitchingServer(spec(), pools=POOLS)
    try:
        for number, config in enumerate((CHAIN, TREE)):
            traced = server.trace(config, TraceOrder(file=str(tmp_path / f"{number}"), poison_id=1, max_bytes=10))
            assert isinstance(traced, LaunchObservation), traced
        assert len(lines(tmp_path / "starts")) == 1
    except BaseException:
        server.close()
        raise
    tree, chain = applied(server, TREE, CHAIN)
    assert (tree.effective_args["attention_backend"], tree.weights_loaded) == ("flashinfer", False)
    assert (chain.effective_args["attention_backend"], chain.weights_loaded) == ("fa3", True)


def test_all_triples_of_a_sweep_are_asked_at_once_on_the_devices_of_the_group(spec: Any, tmp_path: Path) -> None:
    configs = (CHAIN, SHORT_CHAIN, TREE, LARGEST)
    rooms = Rooms(spec(), POOLS, tuple(config.triple for config in configs if config.triple is not None))
    assert [rooms.to_launch(config)[1] for config in configs] == [WHY, WHY, None, None]
    assert rooms.to_launch(speculative(3, 1, 4, layout=(0, 1, 2)))[1] == WHY
    # the second question is about the room that chains have among themselves
    assert lines(tmp_path / "questions") == [[4, "3"], [1, "3"]]
    assert rooms.to_launch(baseline()) == (baseline(), None)


def test_without_an_answer_chains_and_trees_are_kept_apart(spec: Any) -> None:
    rooms = Rooms(spec(python="/nowhere/python"), POOLS)
    room, why = rooms.to_launch(CHAIN)
    assert (room.triple, why) == (CHAINS, "engine.python: /nowhere/python cannot be run: No such file or directory")
    assert rooms.to_launch(TREE) == (LARGEST, None)


NO_ANSWER = "engine.python: gave no answer"
UNCHECKED = f"not checked whether a launch of its own would get other arguments: {NO_ANSWER}"


@pytest.fixture
def fails_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first question has no answer; how many settings each question is about."""
    asked: list[int] = []

    def answer(engine: Any, device: Any, settings: Any, **rest: Any) -> Any:
        asked.append(len(settings))
        if len(asked) == 1:
            raise EnvironmentProblem(NO_ANSWER)
        return ask_engine(engine, device, settings, **rest)

    monkeypatch.setattr("actors.engines.rooms.ask_engine", answer)
    return asked


def test_a_question_without_an_answer_is_asked_again_for_the_next_launch(spec: Any, fails_once: list[int]) -> None:
    rooms = Rooms(spec(), POOLS)
    assert rooms.to_launch(TREE) == (LARGEST, None)
    assert [rooms.unchecked(LARGEST, config) for config in (TREE, LARGEST)] == [UNCHECKED, None]
    # while the server that this was about runs, nothing is asked
    assert rooms.difference(LARGEST, CHAIN) == NO_ANSWER
    assert fails_once == [2]
    assert rooms.to_launch(CHAIN) == (CHAINS_ROOM, WHY)
    assert (rooms.unchecked(CHAINS_ROOM, CHAIN), rooms.difference(LARGEST, TREE)) == (None, None)


def test_records_say_what_was_switched_unchecked(spec: Any, fails_once: list[int], tmp_path: Path) -> None:
    order = (TREE, SHALLOW_TREE, SHALLOW_TREE, CHAIN, TREE)
    seen = applied(SwitchingServer(spec(), pools=POOLS), *order)
    assert [UNCHECKED in one.findings for one in seen] == [True, True, True, False, False]
    assert [one.effective_args["attention_backend"] for one in seen] == 3 * ["flashinfer"] + ["fa3", "flashinfer"]
    assert len(lines(tmp_path / "starts")) == 3


def test_closing_ends_a_question_and_asks_no_more(spec: Any, tmp_path: Path) -> None:
    started = tmp_path / "started"
    hangs = tmp_path / "hangs"
    hangs.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 100\n")
    hangs.chmod(0o755)
    made = spec(python=str(hangs))
    server, seen = SwitchingServer(made, pools=POOLS), list[Any]()
    thread = threading.Thread(target=lambda: seen.append(server.apply(CHAIN)))
    thread.start()
    while not started.exists():
        assert thread.is_alive()
        time.sleep(0.02)
    assert find_leftovers(made.owner) != []
    server.close()
    assert find_leftovers(made.owner) == []
    thread.join(timeout=20)
    assert [(one.kind, one.message) for one in seen] == [("interrupted", "the engine is closed")]
    started.unlink()
    assert server.apply(CHAIN).kind == "interrupted"
    assert not started.exists()


def test_a_room_that_sglang_refuses_is_not_launched(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_trees(engine: Any, device: Any, settings: Any, **_: Any) -> Any:
        trees = [one["speculative_eagle_topk"] > 1 for one in settings]
        return tuple(Resolution(error="no" if tree else None, triple=None, args={}) for tree in trees)

    monkeypatch.setattr("actors.engines.rooms.ask_engine", refuse_trees)
    assert Rooms(spec(), POOLS).to_launch(CHAIN)[0].triple == CHAINS


def test_on_a_cpu_nothing_is_asked(spec: Any, tmp_path: Path) -> None:
    assert Rooms(spec(device="cpu"), POOLS).to_launch(CHAIN)[0].triple == POOLS
    assert lines(tmp_path / "questions") == []
