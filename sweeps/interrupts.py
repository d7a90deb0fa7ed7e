"""Being told to stop: the first signal asks the loop to end, a second Ctrl-C ends it where it stands."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class StopRequest:
    """Set by a signal, read by the loop. `by` is the first signal's name."""

    by: str | None = None

    @property
    def requested(self) -> bool:
        return self.by is not None


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request while in the context; the old handlers come back after it.

    A signal that the process was started to ignore stays ignored: SIGHUP under nohup, SIGINT in a script's background.
    A second SIGINT raises KeyboardInterrupt. Further SIGTERMs do nothing: `ray job stop` reaches a driver by several
    ways at once. Outside the main thread, where Python has no handlers, nothing is changed.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.by = stop.by or signal.Signals(number).name

    heard = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
