"""Which accelerators this machine has, asked of `nvidia-smi`: no CUDA context is made and torch is not imported."""

from __future__ import annotations

import csv
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from actors.engines.server_spec import Device

QUERY = "index,uuid,name,memory.used"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU. `index` and `uuid` are both valid in CUDA_VISIBLE_DEVICES."""

    index: str
    uuid: str
    name: str
    memory_used_mib: int


def list_gpus(timeout_s: float = 20.0) -> tuple[Gpu, ...]:
    """The GPUs of this machine; none when there is no driver. Does not look at CUDA_VISIBLE_DEVICES."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    words = [program, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_gpus(answer.stdout) if answer.returncode == 0 else ()


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """`nvidia-smi`'s lines. A GPU that reports no memory (MIG, some vGPUs) counts as using none."""
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) == 4:
            index, uuid, name, used = (cell.strip() for cell in row)
            gpus.append(Gpu(index=index, uuid=uuid, name=name, memory_used_mib=int(used) if used.isdigit() else 0))
    return tuple(gpus)


def has_gpu(device_files: Path = Path("/dev")) -> bool:
    """Whether this machine has a GPU: one is listed, or a container without `nvidia-smi` was given its device file."""
    return bool(list_gpus()) or any(device_files.glob("nvidia[0-9]*"))


def describe(device: Device, ids: tuple[str, ...], gpus: tuple[Gpu, ...]) -> str:
    """On what was measured: `cpu`, or names and numbers such as `2 x NVIDIA H200`."""
    if device == "cpu":
        return "cpu"
    names = Counter(gpu.name for gpu in _held(ids, gpus))
    return ", ".join(f"{count} x {name}" for name, count in names.items()) or f"{len(ids)} x unknown GPU"


def memory_used_mib(ids: tuple[str, ...], gpus: tuple[Gpu, ...]) -> int:
    return sum(gpu.memory_used_mib for gpu in _held(ids, gpus))


def wait_for_memory(ids: tuple[str, ...], limit_mib: int, timeout_s: float = 30.0) -> int:
    """Wait until these GPUs use at most `limit_mib` together; returns what they use in the end.

    The driver gives a dead process's memory back a little later than the process goes.
    """
    deadline = time.monotonic() + timeout_s
    while (used := memory_used_mib(ids, list_gpus())) > limit_mib and time.monotonic() < deadline:
        time.sleep(0.5)
    return used


def _held(ids: tuple[str, ...], gpus: tuple[Gpu, ...]) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu.index in ids or any(gpu.uuid.startswith(name) for name in ids if len(name) > 4)]
