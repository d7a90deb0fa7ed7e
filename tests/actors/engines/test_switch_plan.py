"""What is done next to bring a server into a configuration, without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from server_specs import baseline, fake_spec, speculative
from tiny_models import TinyPair
from trial_builders import launch

from actors.engines.rooms import Rooms
from actors.engines.switch_history import SwitchHistory
from actors.engines.switch_plan import Launch, Running, next_step
from results.failures import Failure
from search_spaces.config import EngineConfig, Triple

CHAIN, TREE, LARGEST = speculative(3, 1, 4), speculative(3, 4, 8), speculative(5, 4, 16)
CHAINS_ROOM = speculative(5, 1, 6)
OOM = Failure(phase="launch", kind="oom", message="out of memory")

MakeRooms = Callable[[SwitchHistory], Rooms]


@pytest.fixture
def make_rooms(tiny_pair: TinyPair, tmp_path: Path) -> MakeRooms:
    """On a CPU, where SGLang makes the same of every triple."""
    pools = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)
    return lambda history: Rooms(fake_spec(tiny_pair, tmp_path / "work"), pools, history=history)


def running(config: EngineConfig, room: EngineConfig = LARGEST, *, ordered: bool = False) -> Running:
    return Running(room=room, config=config, launch=launch(), ordered=ordered)


def test_keep_switch_or_launch(make_rooms: MakeRooms) -> None:
    rooms = make_rooms(SwitchHistory())
    for now, wanted, ordered, trusted, step in (
        (None, TREE, False, True, Launch(room=LARGEST)),
        (None, TREE, False, False, Launch(room=TREE)),
        (None, baseline(), False, True, Launch(room=baseline())),
        (running(TREE), TREE, False, True, "keep"),
        (running(TREE), TREE, False, False, "keep"),
        (running(TREE), CHAIN, False, True, "switch"),
        (running(TREE), CHAIN, False, False, Launch(room=CHAIN)),
        # one that traces is no server to measure on, and every order is given by a switch
        (running(TREE, ordered=True), TREE, False, True, "switch"),
        (running(TREE, ordered=True), TREE, False, False, Launch(room=TREE)),
        (running(TREE), TREE, True, True, "switch"),
        # beyond the room, and another server
        (running(CHAIN, CHAIN), TREE, False, True, Launch(room=LARGEST)),
        (running(TREE), baseline(), False, True, Launch(room=baseline())),
        (running(TREE), replace(TREE, tp_size=2), True, True, Launch(room=replace(LARGEST, tp_size=2))),
    ):
        assert next_step(now, wanted, ordered=ordered, trusted=trusted, rooms=rooms) == step, (now, wanted)


@pytest.mark.parametrize("ordered", [False, True])
def test_room_that_failed_is_not_made_again(make_rooms: MakeRooms, ordered: bool) -> None:
    history = SwitchHistory()
    rooms = make_rooms(history)
    less = "a server with room for (5,4,16) failed: out of memory"
    history.room_failed(LARGEST, OOM)

    def step(wanted: EngineConfig) -> object:
        return next_step(None, wanted, ordered=ordered, trusted=True, rooms=rooms)

    assert step(CHAIN) == Launch(room=CHAINS_ROOM, less=less)
    assert step(TREE) == Launch(room=TREE, less=less)
    assert step(LARGEST) == Launch(room=LARGEST)
    history.room_failed(CHAINS_ROOM, OOM)
    assert step(CHAIN) == Launch(room=CHAIN, less=less)
