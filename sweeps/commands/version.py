"""`specsweep version`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import typer

from sweeps.commands.options import AsJson, print_json

SCHEMA = 1
SHOWN = ("sglang", "ray", "optuna", "mlflow", "torch")


def version(as_json: AsJson = False) -> None:
    """Print the version of specsweep and of what it stands on."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "specsweep": _installed("specsweep"),
        "python": platform.python_version(),
    }
    content |= {name: _installed(name) for name in SHOWN}
    if as_json:
        print_json(content)
        return
    for name, value in content.items():
        if name != "schema":
            typer.echo(f"{name} {value or 'not installed'}")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
