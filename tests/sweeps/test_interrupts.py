"""The first signal asks to stop, a second Ctrl-C insists, and the old handlers come back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from sweeps.interrupts import STOP_SIGNALS, stop_signals


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Signals that are heard, however the tests were started."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_one_signal_is_a_request(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.by == number.name
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with stop_signals() as stop:
            os.kill(os.getpid(), number)
            assert not stop.requested
            other = next(other for other in STOP_SIGNALS if other != number)
            os.kill(os.getpid(), other)
            assert stop.by == other.name
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_a_second_interrupt_insists_and_further_sigterms_do_not() -> None:
    with stop_signals() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.by == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
