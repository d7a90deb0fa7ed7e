"""Which accelerators this machine has, asked of `nvidia-smi`: no CUDA context is made and torch is not imported."""

from __future__ import annotations

import csv
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from actors.engines.server_spec import Device
from search_spaces.errors import EnvironmentProblem, InputError

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


def choose_device(asked: Literal["auto", "cuda", "cpu"]) -> Device:
    """The device to serve on. EnvironmentProblem when CUDA is asked for and this machine has no GPU."""
    if asked not in ("auto", "cuda", "cpu"):
        raise InputError(f"engine.device: {asked!r} is unknown; legal: auto, cuda, cpu")
    if asked == "cpu":
        return "cpu"
    if list_gpus():
        return "cuda"
    if asked == "cuda":
        raise EnvironmentProblem("engine.device is cuda, but nvidia-smi finds no GPU on this machine")
    return "cpu"


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
