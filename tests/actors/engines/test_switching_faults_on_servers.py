"""Faults of switching on real servers: the stand-in's story (`test_switching_faults.py`) holds for SGLang itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live_servers import DEFAULT, TRAINED, ask_all, config, demo_spec, demo_workload, launched

from actors.engines import live_control, plugin_folder
from actors.engines.guard import all_pids, read_stat
from actors.engines.switching_server import SwitchingServer
from search_spaces.config import Triple

pytestmark = [pytest.mark.server, pytest.mark.evidence, pytest.mark.timeout(900)]

POOLS = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)


def test_a_plugin_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang logs that it cannot load it and serves all the same; two launches later the setting is measured."""
    monkeypatch.setattr(plugin_folder, "_ENTRY_POINTS", "[sglang.srt.plugins]\nspecsweep = no_such_module:register\n")
    monkeypatch.setattr(live_control, "ANSWER_GRACE_S", 5.0)
    server = SwitchingServer(demo_spec(tmp_path), pools=POOLS)
    try:
        observed = launched(server.apply(config(TRAINED, (3, 1, 4))))
        assert any("is the plugin loaded" in finding for finding in observed.findings)
        assert observed.switch_s is None
        assert observed.effective_args["speculative_num_steps"] == 3
        assert len(ask_all(server.base_url, demo_workload(prompts=1, tokens=16))) == 1
    finally:
        server.close()


def test_requests_that_run_and_a_rank_that_dies_during_a_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # long enough to be met, short enough to end while a busy server is asked again
    load = demo_workload(prompts=1, tokens=100)
    monkeypatch.setattr(live_control, "BUSY_GRACE_S", 60.0)
    server = SwitchingServer(demo_spec(tmp_path), pools=POOLS)
    try:
        first = launched(server.apply(config(TRAINED, (3, 4, 8), 2)))
        alone = ask_all(server.base_url, load)

        answered: list[object] = []
        asking = threading.Thread(target=lambda: answered.append(ask_all(server.base_url, load)))
        asking.start()
        time.sleep(0.3)
        assert asking.is_alive()
        switched = launched(server.apply(config(DEFAULT, (3, 1, 4), 2)))
        asking.join()
        assert switched.switch_s is not None
        assert not switched.weights_loaded
        # what was asked before the switch was answered by what ran then
        assert answered == [alone]

        victim = rank_process(first.pid, 1, tp_size=2)
        order = server._control._folder.path / "order.json"
        before = order.stat().st_mtime_ns
        killer = threading.Thread(
            target=lambda: when(lambda: order.stat().st_mtime_ns != before, lambda: os.kill(victim, signal.SIGKILL))
        )
        killer.start()
        mended = launched(server.apply(config(TRAINED, (3, 4, 8), 2)))
        killer.join()
        assert mended.pid != first.pid
        assert any("launched anew" in finding for finding in mended.findings)
        assert ask_all(server.base_url, load) == alone
    finally:
        server.close()


def rank_process(server_pid: int, rank: int, tp_size: int) -> int:
    """The scheduler process of a rank: a server starts them in order, then the detokenizer."""
    children = [(stat[2], pid) for pid in all_pids() if (stat := read_stat(pid)) is not None and stat[1] == server_pid]
    assert len(children) == tp_size + 1, children
    return sorted(children)[rank][1]


def when(condition: Callable[[], bool], act: Callable[[], None], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return
        time.sleep(0.002)
    act()
