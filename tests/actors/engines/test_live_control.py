"""The control channel and the rules of what can be switched, without a server."""

from __future__ import annotations

import stat
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from actors.engines.live_control import LiveControl, NotSwitched, Switched, why_not_switchable, with_room
from actors.sglang_plugin.orders import FOLDER_VARIABLE, TOKEN_VARIABLE, Answer, ControlFolder, Order, TraceOrder
from search_spaces.config import EngineConfig, Triple


def configuration(
    layout: tuple[int, ...] | None = (0, 3, 7), triple: tuple[int, int, int] | None = (3, 4, 8), tp_size: int = 1
) -> EngineConfig:
    numbers = None if triple is None else Triple(num_steps=triple[0], eagle_topk=triple[1], num_draft_tokens=triple[2])
    return EngineConfig(layout=layout, triple=numbers, tp_size=tp_size)


POOLS = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)
ORDER = Order(
    sequence=1,
    num_steps=3,
    eagle_topk=4,
    num_draft_tokens=8,
    ids=(-1, 2, 6),
    graph_batch_sizes=None,
    trace=TraceOrder(file="pool.bin", poison_id=2, max_bytes=10),
)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (configuration(layout=(2, 4, 5), triple=(5, 4, 16)), None),
        (configuration(triple=(1, 1, 2)), None),
        (configuration(tp_size=2), "tp_size 1 -> 2"),
        (configuration(layout=None, triple=None), "speculation is switched on or off"),
        (configuration(layout=(0, 3)), "another number of taps"),
        (configuration(triple=(7, 4, 8)), "num_steps 7 is beyond the server's pools for (5,4,16)"),
        (configuration(triple=(5, 8, 8)), "eagle_topk 8 is beyond the server's pools for (5,4,16)"),
    ],
)
def test_only_layout_and_triple_within_the_pools_are_switched(wanted: EngineConfig, reason: str | None) -> None:
    assert why_not_switchable(with_room(configuration(), POOLS), wanted) == reason


def test_room_is_the_larger_of_both_in_every_number() -> None:
    assert with_room(configuration(triple=(7, 1, 8)), POOLS) == configuration(triple=(7, 4, 16))
    baseline = configuration(layout=None, triple=None)
    assert with_room(baseline, POOLS) is baseline


def test_an_order_arrives_as_it_was_given_and_only_once(tmp_path: Path) -> None:
    folder = ControlFolder.create(tmp_path / "control", "secret")
    assert folder.take(after=0) is None
    folder.give(ORDER)
    assert folder.take(after=0) == ORDER
    assert folder.take(after=1) is None


def test_the_folder_is_closed_to_others_and_another_token_is_refused(tmp_path: Path) -> None:
    folder = ControlFolder.create(tmp_path / "control", "secret")
    assert stat.S_IMODE((tmp_path / "control").stat().st_mode) == 0o700
    folder.give(ORDER)
    with pytest.raises(PermissionError):
        ControlFolder(tmp_path / "control", "another").take(after=0)


def test_a_new_server_does_not_see_the_last_ones_order(tmp_path: Path) -> None:
    control = LiveControl(tmp_path / "control")
    seen = ControlFolder(tmp_path / "control", control.environment[TOKEN_VARIABLE])
    assert control.environment[FOLDER_VARIABLE] == str(tmp_path / "control")
    seen.give(ORDER)
    control.forget()
    assert seen.take(after=0) is None


def test_a_rank_of_the_old_server_may_rename_its_answer_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ControlFolder.create(tmp_path / "control", "secret")
    folder.give(ORDER)
    renamed = folder.path / ".answer-0.json.7"
    monkeypatch.setattr(Path, "iterdir", lambda path: iter([renamed, path / "order.json"]))
    folder.clear()
    assert folder.take(after=0) is None


class Ranks:
    """A stand-in server: `/flush_cache` answers `status`, then every rank answers with what `running` says."""

    def __init__(
        self,
        control: LiveControl,
        running: list[dict[str, object]],
        *,
        status: int = 200,
        body: str = "",
        error: str = "",
    ):
        folder = ControlFolder(Path(control.environment[FOLDER_VARIABLE]), control.environment[TOKEN_VARIABLE])

        self.flushes = flushes = list[int]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                order = folder.take(after=0)
                assert order is not None
                if status == 200:
                    for rank, runs in enumerate(running):
                        failed = error if error and rank == len(running) - 1 else None
                        folder.answer(
                            Answer(
                                sequence=order.sequence,
                                rank=rank,
                                error=failed,
                                elapsed_s=0.1,
                                running=runs,
                                graphs_s=0.01 * rank,
                                graphs_gb=0.5 - rank / 8,
                            )
                        )
                flushes.append(status)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()


RIGHT = {"num_steps": 3, "eagle_topk": 4, "num_draft_tokens": 8, "layers_to_capture": [0, 3, 7]}


@pytest.mark.parametrize(
    ("running", "options", "reason"),
    [
        ([RIGHT, RIGHT], {}, None),
        ([RIGHT, {**RIGHT, "eagle_topk": 1}], {}, "rank 1 runs eagle_topk 1, not 4"),
        ([RIGHT, {**RIGHT, "num_steps": "3 and 5"}], {}, "rank 1 runs num_steps 3 and 5, not 3"),
        (
            [RIGHT, {**RIGHT, "layers_to_capture": [2, 4, 5]}],
            {},
            "rank 1 runs layers_to_capture [2, 4, 5], not [0, 3, 7]",
        ),
        ([{**RIGHT, "layers_to_capture": None}] * 2, {}, "rank 0 runs layers_to_capture None, not [0, 3, 7]"),
        ([RIGHT, RIGHT], {"error": "RuntimeError: no memory"}, "rank 1: RuntimeError: no memory"),
        ([RIGHT], {}, "1 of 2 ranks answered in 0.5 s"),
        ([RIGHT, RIGHT], {"status": 400}, "the server refused to flush (HTTP 400): requests are running"),
        (
            [RIGHT, RIGHT],
            {"status": 400, "body": "Flush cache failed.\nwaiting: 3\n"},
            "the server refused to flush (HTTP 400): Flush cache failed. waiting: 3",
        ),
        ([RIGHT, RIGHT], {"status": 404}, "the server refused to flush (HTTP 404): Not Found"),
        (
            [RIGHT, RIGHT],
            {"status": 401, "body": '{"error":"Unauthorized"}'},
            'the server refused to flush (HTTP 401): {"error":"Unauthorized"}',
        ),
        ([RIGHT, RIGHT], {"status": 500, "body": "scheduler"}, "the server refused to flush (HTTP 500): scheduler"),
    ],
)
def test_a_switch_counts_only_when_every_rank_runs_the_order(
    tmp_path: Path, running: list[dict[str, object]], options: dict[str, object], reason: str | None
) -> None:
    control = LiveControl(tmp_path / "control")
    with Ranks(control, running, **options) as server:  # type: ignore[arg-type]
        outcome = control.switch(
            server.base_url,
            configuration(),
            (-1, 2, 6),
            ranks=2,
            graph_batch_sizes=None,
            timeout_s=0.5,
            is_alive=lambda: True,
        )
    if reason is None:
        assert isinstance(outcome, Switched)
        assert outcome.running == RIGHT
        assert (outcome.graphs_s, outcome.graphs_gb) == (0.01, 0.5)
    else:
        assert outcome == NotSwitched(reason=reason)
    # only a busy server is asked again
    assert (len(server.flushes) > 1) == (options.get("status") == 400)


def test_an_order_that_cannot_be_written_is_no_switch(tmp_path: Path) -> None:
    control = LiveControl(tmp_path / "control")
    (tmp_path / "control").rmdir()
    outcome = ordered(control, "http://127.0.0.1:1")
    assert isinstance(outcome, NotSwitched)
    assert outcome.reason.startswith("the order cannot be written: [Errno 2]")
    assert (outcome.for_good, outcome.of_machine) == (False, True)


@pytest.mark.parametrize(
    ("error", "of_machine"),
    [
        ("OSError: [Errno 28] No space left on device: '/kernels/cache'", True),
        ("RuntimeError: no memory", False),
    ],
)
def test_a_rank_that_meets_a_full_disk_says_nothing_about_switching(
    tmp_path: Path, error: str, of_machine: bool
) -> None:
    control = LiveControl(tmp_path / "control")
    with Ranks(control, [RIGHT], error=error) as server:
        outcome = ordered(control, server.base_url)
    assert outcome == NotSwitched(reason=f"rank 0: {error}", of_machine=of_machine)


def test_silence_is_for_good_only_where_nobody_ever_answered(tmp_path: Path) -> None:
    control = LiveControl(tmp_path / "control")
    with Ranks(control, [RIGHT]) as server:
        assert isinstance(ordered(control, server.base_url), Switched)
    with Ranks(control, []) as server:
        outcome = ordered(control, server.base_url)
    assert outcome == NotSwitched(
        reason="no rank answered in 0.3 s, as some did before: does it hang, or is its disk full?"
    )


def ordered(control: LiveControl, base_url: str) -> Switched | NotSwitched:
    return control.switch(
        base_url,
        configuration(),
        (-1, 2, 6),
        ranks=1,
        graph_batch_sizes=None,
        timeout_s=0.3,
        is_alive=lambda: True,
    )


def test_a_server_without_the_plugin_is_told_apart(tmp_path: Path) -> None:
    control = LiveControl(tmp_path / "control")
    with Ranks(control, []) as server:
        outcome = ordered(control, server.base_url)
    assert isinstance(outcome, NotSwitched)
    assert "is the plugin loaded" in outcome.reason
    assert outcome.for_good
