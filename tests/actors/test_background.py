"""Calls in a thread of their own: what they return and raise, and when they are over."""

from __future__ import annotations

import threading

import pytest

from actors.background import InBackground


def test_it_runs_beside_and_gives_what_the_call_gave() -> None:
    go = threading.Event()
    work = InBackground(lambda: go.wait(20) and "done")
    assert not work.wait(0.01)
    go.set()
    assert work.wait(20)
    assert work.result() == "done"
    assert work.result() == "done"


def test_what_the_call_raised_is_raised() -> None:
    def fail() -> None:
        raise OSError("no room")

    work = InBackground(fail)
    with pytest.raises(OSError, match="no room"):
        work.result()
    assert work.wait(0)
