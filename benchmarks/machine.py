"""What a result file says about where it comes from: the machine and the versions, without any path."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def machine(*packages: str) -> dict[str, object]:
    """The CPU's model and number, the load before anything was measured, Python and the packages named."""
    models = [line.partition(":")[2].strip() for line in _lines(CPUINFO) if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
