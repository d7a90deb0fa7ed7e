"""A server is switched only between settings that SGLang would launch alike. The engine is the stand-in, "on CUDA"."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_specs import baseline, fake_spec, speculative
from tiny_models import TinyPair

from actors.engines.preflight import Resolution
from actors.engines.rooms import Rooms
from actors.engines.server_spec import ServerSpec
from actors.engines.switching_server import SwitchingServer
from actors.sglang_plugin.orders import TraceOrder
from results.observations import LaunchObservation
from search_spaces.config import Triple

POOLS = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)
CHAINS = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
CHAIN, SHORT_CHAIN, TREE, LARGEST = (speculative(*n) for n in ((3, 1, 4), (1, 1, 2), (3, 4, 8), (5, 4, 16)))
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


def test_a_room_that_sglang_refuses_is_not_launched(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_trees(engine: Any, device: Any, settings: Any, **_: Any) -> Any:
        trees = [one["speculative_eagle_topk"] > 1 for one in settings]
        return tuple(Resolution(error="no" if tree else None, triple=None, args={}) for tree in trees)

    monkeypatch.setattr("actors.engines.rooms.ask_engine", refuse_trees)
    assert Rooms(spec(), POOLS).to_launch(CHAIN)[0].triple == CHAINS


def test_on_a_cpu_nothing_is_asked(spec: Any, tmp_path: Path) -> None:
    assert Rooms(spec(device="cpu"), POOLS).to_launch(CHAIN)[0].triple == POOLS
    assert lines(tmp_path / "questions") == []
