"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The spec, a YAML file.", show_default=False)]
Study = Annotated[str, typer.Argument(metavar="STUDY", help="A study's name, or its folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=YAML",
        help="Replace one value of the spec, e.g. --set 'space.tp_size=[1,2]'. May be repeated.",
        show_default=False,
    ),
]
TrainedOn = Annotated[
    str | None,
    typer.Option(
        "--trained-on",
        metavar="TAPS",
        help="Taps the draft was trained on, such as 0,3,7 (0 is the embedding); else the best layout is presumed.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON (documented in docs/json.md) and nothing else.")]


NOBODY_READS = (errno.EPIPE, errno.EIO)
"""A pipe whose reader has seen enough; a terminal that is gone."""


@contextlib.contextmanager
def whoever_reads() -> Iterator[None]:
    """For showing what is done and kept: where standard output cannot be written the rest of it is not shown, and
    nothing else changes. Said in one line on standard error, unless it is only that nobody reads any more."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        if error.errno not in NOBODY_READS:
            typer.echo(f"specsweep: standard output: {error.strerror}", err=True)


def silence(stream: TextIO) -> None:
    """What is written to a broken stream from now on, also by Python at its exit, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_json(content: Mapping[str, Any]) -> None:
    """One JSON object on stdout, indented on a terminal; NaN is a bug here, not a value."""
    # indenting costs a second for 10,000 rows, as json then leaves its C encoder
    text = json.dumps(content, indent=2 if sys.stdout.isatty() else None, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(text + "\n")
