"""What a group learns about switching, and for how much it holds."""

from __future__ import annotations

from dataclasses import replace

from server_specs import speculative

from actors.engines.live_control import NotSwitched
from actors.engines.switch_history import SwitchHistory
from results.failures import Failure, Kind

ROOM, SMALL = speculative(5, 4, 16), speculative(3, 4, 8)
ELSEWHERE = replace(ROOM, layout=(0, 3, 7))
BUSY = NotSwitched(reason="busy")


def failed(kind: Kind) -> Failure:
    return Failure(phase="launch", kind=kind, message=f"it was {kind}")


def test_room_is_to_blame_only_where_less_of_it_starts() -> None:
    history = SwitchHistory()
    assert history.room_failed(ROOM, failed("crash"))
    assert history.room_problem(ROOM) == "a server with room for (5,4,16) failed: it was crash"
    history.started(replace(SMALL, layout=(0, 3, 7)))
    assert history.room_problem(ELSEWHERE) is None
    history.started(SMALL)
    assert history.room_problem(ELSEWHERE) == history.room_problem(ROOM)
    # other flags and another TP size are other servers
    for other in (replace(ELSEWHERE, tp_size=2), replace(ELSEWHERE, flags=(("kv_cache_dtype", "fp8_e5m2"),))):
        assert history.room_problem(other) is None


def test_what_no_size_can_help_is_not_blamed_on_it() -> None:
    history = SwitchHistory()
    kinds: tuple[Kind, ...] = ("interrupted", "machine", "environment", "no_engine", "simulated", "port_in_use")
    assert not any(history.room_failed(ROOM, failed(kind)) for kind in kinds)
    # a first server may be late for its cold disk
    assert [history.room_failed(ROOM, failed("timeout")) for _ in range(2)] == [False, True]


def test_two_failed_switches_in_a_row_end_switching() -> None:
    history = SwitchHistory()
    for _ in range(3):
        history.not_switched(BUSY, ROOM, ordered=False)
        history.switched()
    history.not_switched(replace(BUSY, of_machine=True), ROOM, ordered=False)
    history.not_switched(BUSY, ROOM, ordered=True)
    history.not_switched(BUSY, ROOM, ordered=False)
    assert history.distrust(ROOM) is None
    history.not_switched(replace(BUSY, reason="busy again"), ROOM, ordered=False)
    assert history.distrust(SMALL) == "busy again"


def test_a_reason_for_good_holds_for_servers_with_the_same_flags() -> None:
    history, overlapping = SwitchHistory(), replace(SMALL, flags=(("enable_two_batch_overlap", True),))
    history.not_switched(NotSwitched(reason="never", for_good=True), overlapping, ordered=True)
    assert (history.distrust(overlapping), history.distrust(SMALL)) == ("never", None)
