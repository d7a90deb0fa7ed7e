"""What goes wrong with switching: no plugin, a rank that dies, fails or is silent, requests that still run.

The server is the stand-in, whose ranks obey orders as the plugin does.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server_specs import fake_spec, speculative
from tiny_models import TinyPair

from actors.engines import live_control, switching_server
from actors.engines.switching_server import SwitchingServer
from actors.sglang_plugin.orders import TraceOrder
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, Triple

POOLS = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)
FIRST, SECOND, THIRD = speculative(3, 1, 4), speculative(3, 4, 8), speculative(5, 4, 16)


class Bench:
    """Makes switching servers whose starts are counted, and closes them."""

    def __init__(self, pair: TinyPair, folder: Path) -> None:
        self._pair, self._folder = pair, folder
        self._starts = folder / "starts"
        self._made: list[SwitchingServer] = []

    def server(self, **plan: Any) -> SwitchingServer:
        plan |= {"count_file": str(self._starts), "marker": str(self._folder / "marker")}
        made = SwitchingServer(fake_spec(self._pair, self._folder / "work", plan, ready_timeout_s=60.0), pools=POOLS)
        self._made.append(made)
        return made

    @property
    def starts(self) -> list[list[str]]:
        lines = self._starts.read_text().splitlines() if self._starts.exists() else []
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture
def bench(tiny_pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(live_control, "ANSWER_GRACE_S", 0.5)
    made = Bench(tiny_pair, tmp_path)
    yield made
    made.close()


def applied(server: SwitchingServer, config: EngineConfig) -> LaunchObservation:
    observed = server.apply(config)
    assert isinstance(observed, LaunchObservation), observed
    return observed


def test_one_weight_load_for_every_setting(bench: Bench) -> None:
    server = bench.server(on_order="obey")
    first, second, again = (applied(server, config) for config in (FIRST, SECOND, FIRST))
    assert len(bench.starts) == 1
    assert [one.weights_loaded for one in (first, second, again)] == [True, False, False]
    assert all(one.switch_s is not None and one.pools == POOLS for one in (first, second, again))
    assert second.effective_args["speculative_eagle_topk"] == 4
    assert server._failed_switches == 0


def test_the_users_own_list_of_plugins_is_lengthened(tiny_pair: TinyPair, tmp_path: Path) -> None:
    listing = fake_spec(tiny_pair, tmp_path, environment={"SGLANG_PLUGINS": "theirs"})
    with_ours = SwitchingServer(listing, pools=POOLS)._server._spec
    assert with_ours.environment["SGLANG_PLUGINS"] == "theirs,specsweep"
    plain = SwitchingServer(fake_spec(tiny_pair, tmp_path), pools=POOLS)._server._spec
    assert "SGLANG_PLUGINS" not in plain.environment


def test_a_plugin_that_does_not_load_is_said_and_every_setting_is_launched(bench: Bench) -> None:
    """The first finds nobody who answers; from then on nothing is tried, and no room is made for it."""
    server = bench.server()
    first = applied(server, FIRST)
    assert [finding for finding in first.findings if "launched anew" in finding] == [
        "launched anew: no rank answered in 0.5 s: is the plugin loaded, and does this SGLang know load_plugins?"
    ]
    assert first.switch_s is None
    assert first.weights_loaded
    second = applied(server, SECOND)
    assert second.switch_s is None
    starts = bench.starts
    plain = [words[words.index("--speculative-num-steps") + 1] for words in starts]
    # with room, then as asked; the second setting as asked at once
    assert plain == ["5", "3", "3"]
    refused = server.trace(SECOND, TraceOrder(file="pools", poison_id=1, max_bytes=10))
    assert isinstance(refused, Failure)
    assert (refused.phase, refused.kind) == ("launch", "mismatch")
    assert refused.message.startswith("cannot trace: no rank answered in 0.5 s: is the plugin loaded")


def test_a_rank_that_dies_during_a_switch(bench: Bench) -> None:
    server = bench.server(on_order="die")
    first = applied(server, FIRST)
    (finding,) = [finding for finding in first.findings if "launched anew" in finding]
    assert finding.startswith("launched anew: the server did not answer") or "died during the switch" in finding
    assert len(bench.starts) == 2
    assert server.failure_now() is None
    for later in (applied(server, SECOND), applied(server, SECOND)):
        assert later.switch_s is not None
        assert not any("launched anew" in finding for finding in later.findings)
    assert len(bench.starts) == 2


@pytest.mark.parametrize(
    ("on_order", "reason"),
    [
        ("error", "rank 0: RuntimeError: no memory"),
        ("silent", "no rank answered in 0.5 s"),
        ("other layers", "rank 0 runs layers_to_capture [1, 2, 3], not [2, 4, 5]"),
    ],
)
def test_ranks_that_cannot_are_launched_instead(bench: Bench, on_order: str, reason: str) -> None:
    server = bench.server(on_order=on_order)
    observed = applied(server, THIRD)
    # what is asked is what a server with room for everything runs: nothing has to be switched yet
    assert observed.switch_s is None
    assert len(bench.starts) == 1
    observed = applied(server, FIRST)
    assert observed.switch_s is None
    assert any(finding.startswith(f"launched anew: {reason}") for finding in observed.findings)


def test_a_full_disk_does_not_switch_switching_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    server = bench.server(on_order="obey")
    applied(server, FIRST)

    def full(order: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(server._control._folder, "give", full)
        for config in (THIRD, SECOND, FIRST):
            observed = applied(server, config)
            assert "launched anew: the order cannot be written: [Errno 28] No space left on device" in observed.findings
            assert observed.switch_s is None
        assert len(bench.starts) == 4
        refused = server.trace(SECOND, TraceOrder(file="pools", poison_id=1, max_bytes=10))
        assert isinstance(refused, Failure)
        assert (refused.kind, server._failed_switches) == ("machine", 0)
    assert all(applied(server, config).switch_s is not None for config in (FIRST, SECOND))
    with monkeypatch.context() as patch:
        patch.setattr(switching_server, "write_draft_config", lambda *_: full(None))
        observed = applied(server, replace(FIRST, layout=(1, 3, 6)))
    assert (
        "launched anew: the draft's config cannot be written: [Errno 28] No space left on device" in observed.findings
    )
    assert server._failed_switches == 0


def test_what_is_not_freed_and_what_graphs_cost_is_said(bench: Bench) -> None:
    server = bench.server(on_order="hold")
    applied(server, THIRD)
    switched = applied(server, FIRST)
    assert "the switch has not freed what ran before: draft_graphs" in switched.findings
    assert (switched.graphs_s, switched.graphs_gb) == (0.005, 0.25)
    # of this switch only, not of those that follow
    assert sum("not freed" in finding for finding in applied(server, SECOND).findings) == 1


def test_what_an_argument_forbids_is_launched_and_said(bench: Bench) -> None:
    """SGLang would build a backend without the wrapper that it was launched with, and say nothing."""
    server = bench.server(on_order="obey")
    overlapping = [replace(one, flags=(("enable_two_batch_overlap", True),)) for one in (FIRST, SECOND)]
    launches = [applied(server, one) for one in overlapping]
    assert [one.switch_s for one in launches] == [None, None]
    why = "launched anew: SGLang builds nothing anew while it runs with enable_two_batch_overlap"
    assert all(why in one.findings for one in launches)
    assert len(bench.starts) == 2
    # without the argument it is switched as ever
    assert applied(server, FIRST).switch_s is not None


def test_a_switch_asked_while_requests_run_waits_for_them(bench: Bench) -> None:
    server = bench.server(on_order="obey", step_ms=30)
    applied(server, FIRST)
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(ask(server.base_url, tokens=40)))
    asking.start()
    wait_until_running(server.base_url)
    switched = applied(server, SECOND)
    asking.join()
    assert switched.switch_s is not None
    assert switched.switch_s > 0.1
    assert len(bench.starts) == 1
    # the request was served to its end by what ran when it came
    assert answers[0]["meta_info"]["completion_tokens"] == 40
    assert len(answers[0]["meta_info"]["spec_correct_drafts_histogram"]) <= 4


def test_a_server_that_stays_busy_is_launched_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_control, "BUSY_GRACE_S", 0.3)
    server = bench.server(on_order="obey", step_ms=60)
    applied(server, FIRST)
    asking = threading.Thread(target=lambda: ask(server.base_url, tokens=200), daemon=True)
    asking.start()
    wait_until_running(server.base_url)
    observed = applied(server, SECOND)
    assert "launched anew: the server refused to flush (HTTP 400): requests are running" in observed.findings
    assert len(bench.starts) == 2


def ask(base_url: str, *, tokens: int) -> dict[str, Any]:
    body = json.dumps({"text": "a prompt", "sampling_params": {"max_new_tokens": tokens}}).encode()
    request = urllib.request.Request(base_url + "/generate", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            content: dict[str, Any] = json.load(answer)
            return content
    except OSError:
        return {}


def wait_until_running(base_url: str) -> None:
    for _ in range(500):
        with urllib.request.urlopen(base_url + "/v1/loads", timeout=5) as answer:
            if json.load(answer)["loads"][0]["num_running_reqs"]:
                return
    raise AssertionError("no request runs")
