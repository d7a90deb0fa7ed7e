"""Result files: what was found, beside the command, the machine and the versions it was found with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

PACKAGES = ("sglang", "ray", "optuna", "mlflow", "torch")


def write_result(
    path: Path | None, *, command: str, content: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> str:
    """Write a whole result file, or none; returns what is in it.

    `before` is what `machine` said before anything was measured; without it the load is that of now.
    """
    whole = {"schema": 1, "command": command, "machine": before or machine(*PACKAGES), **content}
    text = json.dumps(whole, indent=1) + "\n"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return text


def write_section(path: Path, section: str, *, command: str, content: Mapping[str, Any]) -> None:
    """Write one section of a result file. The others stay if they are of the same machine and versions."""
    try:
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    kept = before if _place(before.get("machine", {})) == _place(machine(*PACKAGES)) else {}
    heading = ("schema", "command", "machine")
    others = {name: value for name, value in kept.items() if name not in heading}
    write_result(path, command=command, content={**others, section: dict(content)})


def _place(seen: Mapping[str, Any]) -> tuple[Any, ...]:
    return seen.get("cpu"), seen.get("cpus"), seen.get("versions")
