"""`specsweep demo-models`."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.demo_models.training import OnStep

PLAIN_INTERVAL_S = 10.0
LOSS_MEMORY = 0.95


def demo_models(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder for target/ and draft/.")],
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes another pair.")] = 0,
) -> None:
    """Train the tiny target and the mislabelled EAGLE-3 draft of the quick start: two to five minutes on two cores."""
    # torch takes seconds to import and only this command trains
    from actors.demo_models.pair import make_pair
    from actors.demo_models.training import Recipe

    started_s = time.monotonic()
    with training_progress(sys.stderr) as on_step:
        rows = make_pair(folder, Recipe(seed=seed), on_step)
    for row in rows:
        taps = ",".join(map(str, row.taps))
        typer.echo(f"{row.layout:<8} layout {taps}: accept length {row.accept_length:.3f} ({row.how})")
    typer.echo(
        f"{folder}: written in {time.monotonic() - started_s:.0f} s; served as shipped, it is fed the wrong layers"
    )


@contextmanager
def training_progress(stream: TextIO) -> Iterator[OnStep]:
    """A live bar for each stage on a terminal, otherwise a plain line every few seconds and at each stage's end."""
    if stream.isatty():
        with _live_bars(stream) as on_step:
            yield on_step
    else:
        yield _PlainLines(stream)


class _SmoothLoss:
    """Exponential average of a stage's loss, so that a reader sees the trend."""

    def __init__(self) -> None:
        self._stage = ""
        self._value = 0.0

    def add(self, stage: str, loss: float) -> float:
        fresh = stage != self._stage
        self._stage = stage
        self._value = loss if fresh else LOSS_MEMORY * self._value + (1 - LOSS_MEMORY) * loss
        return self._value


class _PlainLines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._loss = _SmoothLoss()
        self._started_s = self._said_s = time.monotonic()

    def __call__(self, stage: str, step: int, steps: int, loss: float) -> None:
        smooth, now_s = self._loss.add(stage, loss), time.monotonic()
        if now_s - self._said_s >= PLAIN_INTERVAL_S or step == steps:
            self._said_s = now_s
            elapsed_s = now_s - self._started_s
            print(
                f"{stage} {step}/{steps}, loss {smooth:.3f}, {elapsed_s:.0f} s elapsed", file=self._stream, flush=True
            )


@contextmanager
def _live_bars(stream: TextIO) -> Iterator[OnStep]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<7}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=stream)) as progress:
        tasks = {}
        smooth = _SmoothLoss()

        def on_step(stage: str, step: int, steps: int, loss: float) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=steps, loss=loss)
            progress.update(tasks[stage], completed=step, loss=smooth.add(stage, loss))

        yield on_step
