"""What a group learns about switching, and for how much it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_specs import baseline, speculative

from actors.engines.live_control import NotSwitched
from actors.engines.switch_history import SwitchHistory
from results.failures import Failure, Kind
from search_spaces.config import EngineConfig

ROOM, SMALL = speculative(5, 4, 16), speculative(3, 4, 8)
ELSEWHERE = replace(ROOM, layout=(0, 3, 7))
BUSY = NotSwitched(reason="busy")


def failed(kind: Kind) -> Failure:
    return Failure(phase="launch", kind=kind, message=f"it was {kind}")


def test_room_is_to_blame_only_where_less_of_it_starts() -> None:
    history = SwitchHistory()
    assert history.room_failed(ROOM, failed("oom"))
    assert history.room_problem(ROOM) == "a server with room for (5,4,16) failed: it was oom"
    # the same layout has to start with less
    for other in (replace(SMALL, layout=(0, 3, 7)), speculative(7, 8, 32), baseline(), replace(SMALL, tp_size=2)):
        history.started(other)
        assert history.room_problem(ELSEWHERE) is None, other
    history.started(SMALL)
    assert history.room_problem(ELSEWHERE) == history.room_problem(ROOM)
    # other flags and another TP size are other servers
    for other in (replace(ELSEWHERE, tp_size=2), replace(ELSEWHERE, flags=(("kv_cache_dtype", "fp8_e5m2"),))):
        assert history.room_problem(other) is None


def test_what_no_size_can_help_is_not_blamed_on_it() -> None:
    history = SwitchHistory()
    kinds: tuple[Kind, ...] = ("interrupted", "machine", "environment", "no_engine", "simulated", "port_in_use")
    assert not any(history.room_failed(ROOM, failed(kind)) for kind in kinds)
    assert history.room_problem(ROOM) is None


@pytest.mark.parametrize(
    ("kind", "launch_again"), [("timeout", False), ("crash", True)], ids=["cold disk: retried", "never retried"]
)
def test_what_may_pass_is_held_against_a_room_when_it_comes_twice_in_a_row(kind: Kind, launch_again: bool) -> None:
    history = SwitchHistory()
    for _ in range(3):
        assert history.room_failed(ROOM, failed(kind)) is launch_again
        assert history.room_problem(ROOM) is None
        history.started(ROOM)
    for again in (launch_again, True):
        assert history.room_failed(ROOM, failed(kind)) is again
    assert history.room_problem(ROOM) == f"a server with room for (5,4,16) failed: it was {kind}"


def test_a_size_that_has_started_is_never_too_large_for_other_layouts() -> None:
    history = SwitchHistory()
    history.started(ELSEWHERE)
    # memory may still be held by the server before
    assert history.room_failed(ROOM, failed("oom"))
    assert history.room_problem(ROOM) is None
    assert history.room_failed(ROOM, failed("oom"))
    history.started(SMALL)
    assert (history.room_problem(ROOM) is None, history.room_problem(ELSEWHERE)) == (False, None)


def test_room_that_starts_after_all_is_made_again() -> None:
    """It is launched where it is a setting itself."""
    history = SwitchHistory()
    assert history.room_failed(ROOM, failed("oom"))
    history.started(SMALL)
    assert history.room_problem(ELSEWHERE) is not None
    history.started(ROOM)
    assert (history.room_problem(ROOM), history.room_problem(ELSEWHERE)) == (None, None)


KINDS: tuple[Kind, ...] = ("bad_config", "oom", "crash", "mismatch", "timeout", "machine")
SEEN = st.lists(st.tuples(st.sampled_from([ROOM, ELSEWHERE, SMALL, baseline()]), st.sampled_from([None, *KINDS])))


@given(before=SEEN, kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=2))
def test_after_whatever_was_seen_room_is_launched_at_most_twice(
    before: list[tuple[EngineConfig, Kind | None]], kinds: list[Kind]
) -> None:
    history = SwitchHistory()
    for config, kind in before:
        if kind is None:
            history.started(config)
        else:
            history.room_failed(config, failed(kind))
    again = [history.room_failed(ROOM, failed(kind)) for kind in kinds]
    assert not all(again) or history.room_problem(ROOM) is not None


def test_two_failed_switches_in_a_row_end_switching() -> None:
    history = SwitchHistory()
    for _ in range(3):
        history.not_switched(BUSY, ROOM, ordered=False)
        history.switched(ordered=False)
    history.not_switched(replace(BUSY, of_machine=True), ROOM, ordered=False)
    history.not_switched(BUSY, ROOM, ordered=True)
    history.not_switched(BUSY, ROOM, ordered=False)
    history.switched(ordered=True)
    assert history.distrust(ROOM) is None
    history.not_switched(replace(BUSY, reason="busy again"), ROOM, ordered=False)
    assert (history.distrust(SMALL), history.distrust(SMALL, ordered=True)) == ("busy again", None)


def test_a_reason_for_good_holds_for_servers_with_the_same_flags() -> None:
    history, overlapping = SwitchHistory(), replace(SMALL, flags=(("enable_two_batch_overlap", True),))
    history.not_switched(NotSwitched(reason="never", for_good=True), overlapping, ordered=True)
    for ordered in (False, True):
        assert history.distrust(overlapping, ordered=ordered) == "never"
        assert history.distrust(SMALL, ordered=ordered) is None
