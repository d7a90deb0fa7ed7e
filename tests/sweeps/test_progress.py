from __future__ import annotations

import errno
import io
import time

import pytest

from sweeps.progress import PLAIN_INTERVAL_S, LiveProgress, PlainProgress, Standing, open_progress, show_duration
from sweeps.text_table import format_table


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def standing(done: int = 1, failed: int = 0, running: int = 2, elapsed_s: float = 61) -> Standing:
    return Standing(done=done, failed=failed, running=running, left=7, elapsed_s=elapsed_s, time_left_s=400)


def test_a_standing_says_done_running_left_and_time_left() -> None:
    assert str(standing(done=3, failed=1)) == "3 done (1 failed), 2 running, 7 left, 61 s elapsed, about 7 min left"
    unknown = Standing(done=0, failed=0, running=1, left=None, elapsed_s=0, time_left_s=None)
    assert str(unknown) == "0 done, 1 running, 0 s elapsed"


def test_plain_lines_come_with_news_and_now_and_then_without() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, clock)
    progress.update(standing(done=1))
    progress.update(standing(done=1, elapsed_s=70))
    clock.now_s += PLAIN_INTERVAL_S - 1
    progress.update(standing(done=1))
    assert len(stream.getvalue().splitlines()) == 1
    clock.now_s += 1
    progress.update(standing(done=1))
    progress.say("trial 2 finished")
    progress.update(standing(done=2))
    progress.close()
    progress.say("after the end")
    lines = stream.getvalue().splitlines()
    assert [line.split(" ")[0] for line in lines] == ["[1", "[1", "trial", "[2"]
    assert "\x1b" not in stream.getvalue()


class Broken(Terminal):
    """A terminal or pipe whose other end goes away."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)

    def flush(self) -> None:
        if self.error is not None:
            raise self.error


GONE = [BrokenPipeError(), OSError(errno.EIO, "Input/output error"), ValueError("I/O operation on closed file")]


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [PlainProgress, LiveProgress])
def test_a_sweep_outlives_its_terminal(kind: type[PlainProgress] | type[LiveProgress], error: Exception) -> None:
    for begins_broken in (True, False):
        stream = Broken(error if begins_broken else None)
        progress = kind(stream)
        progress.update(standing())
        progress.say("there")
        assert ("there" in stream.getvalue()) is not begins_broken
        stream.error = error
        progress.say("x")
        progress.update(standing())
        time.sleep(0.2 if kind is LiveProgress else 0)  # rich draws by itself ten times a second
        progress.close()


def test_a_terminal_gets_a_live_line_and_keeps_the_news() -> None:
    stream = Terminal()
    progress = open_progress(stream)
    assert isinstance(progress, LiveProgress)
    progress.update(standing())
    progress.say("trial [bold]1[/bold] finished")
    progress.close()
    progress.close()
    progress.say("after the end")
    assert "trial [bold]1[/bold] finished" in stream.getvalue()
    assert "after the end" not in stream.getvalue()
    assert isinstance(open_progress(io.StringIO()), PlainProgress)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (119, "119 s"), (150, "2 min"), (7199, "2 h 00 min"), (11100, "3 h 05 min"), (183600, "2 d 03 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_tables_align_numbers_right_and_show_what_is_missing() -> None:
    table = format_table(["rule", "settings"], [["tree_pool", 9], ["x", 12], ["none", None]])
    assert table.splitlines() == [
        "  rule       settings",
        "  tree_pool         9",
        "  x                12",
        "  none              -",
    ]
    assert format_table(["a", "b"], []) == "  a  b"
