"""The first signal asks to stop, a second Ctrl-C insists, and the old handlers come back."""

from __future__ import annotations

import os
import signal

import pytest

from sweeps.interrupts import STOP_SIGNALS, stop_signals


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_one_signal_is_a_request(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.by == number.name
    assert signal.getsignal(number) is before


def test_a_second_interrupt_insists_and_further_sigterms_do_not() -> None:
    with stop_signals() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.by == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
