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
from server_specs import baseline, fake_spec, speculative
from tiny_models import TinyPair

from actors.engines import live_control, switching_server
from actors.engines.switch_history import SwitchHistory
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
        self.history = SwitchHistory()  # as a group keeps it for one engine after another

    def server(self, **plan: Any) -> SwitchingServer:
        plan |= {"count_file": str(self._starts), "marker": str(self._folder / "marker")}
        spec = fake_spec(self._pair, self._folder / "work", plan, ready_timeout_s=60.0)
        made = SwitchingServer(spec, pools=POOLS, history=self.history)
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
    # with room, then as asked; the second setting as asked at once
    assert [steps(words) for words in bench.starts] == ["5", "3", "3"]
    assert (first.server_starts, second.server_starts) == (2, 1)
    refused = server.trace(SECOND, TraceOrder(file="pools", poison_id=1, max_bytes=10))
    assert isinstance(refused, Failure)
    assert (refused.phase, refused.kind) == ("launch", "mismatch")
    assert refused.message.startswith("cannot trace: no rank answered in 0.5 s: is the plugin loaded")
    # nobody has to be started for that, nor a room again by a later engine of the group
    assert (refused.server_starts, len(bench.starts)) == (0, 3)
    server.close()
    assert applied(bench.server(), FIRST).server_starts == 1


def test_a_rank_that_dies_during_a_switch(bench: Bench) -> None:
    server = bench.server(on_order="die")
    first = applied(server, FIRST)
    (finding,) = [finding for finding in first.findings if "launched anew" in finding]
    assert finding.startswith("launched anew: the server did not answer") or "died during the switch" in finding
    assert (len(bench.starts), first.server_starts) == (2, 2)
    assert server.failure_now() is None
    # it died once: the next is tried again
    for later, starts in ((applied(server, SECOND), 1), (applied(server, FIRST), 0)):
        assert (later.switch_s is not None, later.server_starts) == (True, starts)
        assert not any("launched anew" in finding for finding in later.findings)
    assert len(bench.starts) == 3


def test_switches_that_always_fail_cost_two_rooms_and_every_start_is_counted(bench: Bench) -> None:
    server = bench.server(on_order="error")
    seen = [applied(server, config) for config in (FIRST, SECOND)]
    assert [one.server_starts for one in seen] == [2, 2]
    assert all("launched anew: rank 0: RuntimeError: no memory" in one.findings for one in seen)
    assert [steps(words) for words in bench.starts] == ["5", "3", "5", "3"]
    server.close()
    # the engine is gone, what was learnt is not
    later = bench.server(on_order="error")
    seen = [applied(later, config) for config in (FIRST, SECOND, FIRST)]
    assert [one.server_starts for one in seen] == [1, 1, 1]
    assert len(bench.starts) == 7


def test_what_is_ordered_is_tried_whatever_became_of_switches(bench: Bench, tmp_path: Path) -> None:
    """Switches fail mostly for the memory of CUDA graphs, which a server that traces has none of."""
    server = bench.server(on_order="error")
    for config in (FIRST, SECOND):
        applied(server, config)
    server.close()
    later = bench.server(on_order="obey")
    traced = later.trace(SECOND, TraceOrder(file=str(tmp_path / "pools"), poison_id=1, max_bytes=10))
    assert isinstance(traced, LaunchObservation)
    assert (traced.server_starts, traced.pools) == (1, POOLS)
    # which says nothing of switches
    assert applied(later, FIRST).switch_s is None


def test_a_trace_that_fails_costs_one_start_and_says_nothing_of_other_switches(bench: Bench) -> None:
    for _ in range(3):
        server = bench.server(on_order="error")
        refused = server.trace(SECOND, TraceOrder(file="pools", poison_id=1, max_bytes=10))
        assert isinstance(refused, Failure)
        assert (refused.message, refused.server_starts) == ("cannot trace: rank 0: RuntimeError: no memory", 1)
        server.close()
    assert applied(bench.server(on_order="obey"), FIRST).switch_s is not None
    assert len(bench.starts) == 4


TOO_LARGE = {
    "on_order": "obey",
    "mode": "die_at_start",
    "only_on": {"num_draft_tokens": 16},
    "log": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
}
LESS = "launched with less room: a server with room for (5,4,16) failed: "


def test_room_that_does_not_fit_says_nothing_of_the_setting(bench: Bench) -> None:
    server = bench.server(**TOO_LARGE)
    chain = applied(server, FIRST)
    # the room of all, then that of chains, within which chains are switched
    assert [(steps(words), tokens(words)) for words in bench.starts] == [("5", "16"), ("5", "6")]
    assert (chain.server_starts, chain.switch_s is not None) == (2, True)
    (told,) = [finding for finding in chain.findings if finding.startswith("launched")]
    assert told.startswith(LESS)
    assert "memory" in told
    tree = applied(server, SECOND)
    assert (tree.server_starts, tree.switch_s) == (1, None)
    assert any(finding.startswith(LESS) for finding in tree.findings)
    # in another layout the room is not tried again, nor by another engine
    assert applied(server, replace(SECOND, layout=(1, 3, 6))).server_starts == 0
    server.close()
    later = bench.server(**TOO_LARGE)
    assert applied(later, replace(SECOND, layout=(0, 3, 7))).server_starts == 1
    assert applied(later, baseline()).server_starts == 1
    # the setting that is as large itself fails by itself
    failure = later.apply(THIRD)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.server_starts) == ("oom", 1)


def test_room_whose_server_crashes_once_is_launched_again(bench: Bench) -> None:
    server = bench.server(on_order="obey", mode="port_in_use_once", log="NCCL error: unhandled system error")
    tree = applied(server, SECOND)
    assert (tree.server_starts, tree.switch_s is not None, tree.pools) == (2, True, POOLS)
    assert applied(server, replace(FIRST, layout=(1, 3, 6))).server_starts == 0


def test_a_setting_that_fails_beside_its_room_fails_by_its_own_fault(bench: Bench) -> None:
    server = bench.server(**TOO_LARGE | {"only_on": {}})
    failure = server.apply(SECOND)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.server_starts, len(bench.starts)) == ("oom", 2, 2)


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
        assert (refused.kind, bench.history.distrust(SECOND)) == ("machine", None)
    assert all(applied(server, config).switch_s is not None for config in (FIRST, SECOND))
    with monkeypatch.context() as patch:
        patch.setattr(switching_server, "write_draft_config", lambda *_: full(None))
        observed = applied(server, replace(FIRST, layout=(1, 3, 6)))
    assert (
        "launched anew: the draft's config cannot be written: [Errno 28] No space left on device" in observed.findings
    )
    assert bench.history.distrust(FIRST) is None


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


def steps(words: list[str]) -> str:
    """Of a command."""
    return words[words.index("--speculative-num-steps") + 1]


def tokens(words: list[str]) -> str:
    return words[words.index("--speculative-num-draft-tokens") + 1]


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
