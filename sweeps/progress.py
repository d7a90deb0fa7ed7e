"""How a sweep shows where it stands: a live line on a terminal, plain lines anywhere else (a job's log, a pipe)."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO, cast

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

PLAIN_INTERVAL_S = 30.0
"""Without news, a plain log gets a line this often."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a sweep stands. A trial counts once, by its latest attempt; None where a number is not known."""

    done: int
    failed: int
    running: int
    left: int | None
    elapsed_s: float
    time_left_s: float | None

    def __str__(self) -> str:
        parts = [f"{self.done} done"]
        if self.failed:
            parts[0] += f" ({self.failed} failed)"
        parts.append(f"{self.running} running")
        if self.left is not None:
            parts.append(f"{self.left} left")
        parts.append(f"{show_duration(self.elapsed_s)} elapsed")
        if self.time_left_s is not None:
            parts.append(f"about {show_duration(self.time_left_s)} left")
        return ", ".join(parts)


class Progress(Protocol):
    """What the loop talks to. Never raises on a closed or broken stream: a sweep outlives its terminal."""

    def say(self, line: str) -> None:
        """One piece of news: a trial started, finished or failed."""
        ...

    def update(self, standing: Standing) -> None:
        """Where the sweep stands now; cheap, may be called often."""
        ...

    def close(self) -> None:
        """Leaves the terminal as it was found; idempotent."""
        ...


def open_progress(stream: TextIO) -> Progress:
    """Live on a terminal, plain lines without control characters otherwise."""
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)


class PlainProgress:
    """News as lines; the standing follows when a trial is over, and now and then without news."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream: TextIO | None = stream
        self._clock = clock
        self._done: int | None = None
        self._said_at_s = float("-inf")

    def say(self, line: str) -> None:
        self._write(line)

    def update(self, standing: Standing) -> None:
        if standing.done != self._done or self._clock() - self._said_at_s >= PLAIN_INTERVAL_S:
            self._done = standing.done
            self._write(f"[{standing}]")

    def close(self) -> None:
        self._stream = None

    def _write(self, line: str) -> None:
        self._said_at_s = self._clock()
        if self._stream is None:
            return
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


class _Unbreakable(io.TextIOBase):
    """A terminal for rich, which also draws in a thread of its own. Silent once it could not be written to."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        self._encoding, self._is_terminal = getattr(stream, "encoding", None) or "utf-8", stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._is_terminal

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._stream = None
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None


class LiveProgress:
    """A bar and a line under the news, drawn by rich."""

    def __init__(self, stream: TextIO) -> None:
        # rich is needed on a terminal only
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._bar: RichProgress | None = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=30),
            TextColumn("{task.description}", markup=False),
            console=Console(file=cast("TextIO", _Unbreakable(stream))),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._bar.start()

    def say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)

    def update(self, standing: Standing) -> None:
        if self._bar is not None:
            total = None if standing.left is None else standing.done + standing.running + standing.left
            self._bar.update(self._task, description=str(standing), completed=standing.done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def show_duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`, `2 d 03 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"
