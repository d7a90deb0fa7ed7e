"""Result files: what was found, beside the command, the machine and the versions it was found with."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("sglang", "ray", "optuna", "mlflow", "torch")


def write_result(path: Path, *, command: str, content: Mapping[str, Any]) -> None:
    """Write a whole result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**_heading(command), **content}, indent=1) + "\n", encoding="utf-8")


def write_section(path: Path, section: str, *, command: str, content: Mapping[str, Any]) -> None:
    """Write one section of a result file. The others stay if machine and versions are still what they were."""
    heading = _heading(command)
    try:
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    if any(before.get(key) != heading[key] for key in heading):
        before = heading
    write_result(path, command=command, content={**before, section: dict(content)})


def _heading(command: str) -> dict[str, Any]:
    return {"schema": 1, "command": command, "machine": machine(), "versions": versions()}


def machine() -> dict[str, Any]:
    """What the numbers depend on: the processor's name and how many cores this process may use."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory_kib = int(Path("/proc/meminfo").read_text(encoding="utf-8").split()[1])
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_kib / 2**20, 1),
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages whose behaviour the results rest on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
