"""Arguments and options that several commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The spec, a YAML file.", show_default=False)]
Study = Annotated[str, typer.Argument(metavar="STUDY", help="A study's name, or its folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=YAML",
        help="Replace one value of the spec, e.g. --set space.tp_size=[1,2]. May be repeated.",
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


def print_json(content: Mapping[str, Any]) -> None:
    """One JSON object on stdout, indented on a terminal; NaN is a bug here, not a value."""
    # indenting costs a second for 10,000 rows, as json then leaves its C encoder
    text = json.dumps(content, indent=2 if sys.stdout.isatty() else None, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(text + "\n")
