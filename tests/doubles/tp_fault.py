"""Planted faults of tensor parallelism: an SGLang plugin under which ranks hand the draft parts of the target's states.

`fault_environment(folder)` gives the variables of a server that obeys `plant`: at tp above 1 every captured hidden
state is then on rank r only a part that sums to it over the ranks (`partial`) or only the rank's slice, zero elsewhere
(`sliced`). The target itself is untouched, so its text stays right.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

VARIABLE = "TEST_TP_FAULT_FILE"
MODULE = "specsweep_test_tp_fault"


Kind = Literal["none", "partial", "sliced"]


def fault_environment(folder: Path, kind: Kind = "none") -> dict[str, str]:
    """Write the plugin into `folder` and name it; for a server's `environment`."""
    info = folder / f"{MODULE}-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{MODULE} = {MODULE}:register\n")
    (folder / f"{MODULE}.py").write_text(Path(__file__).read_text())
    plant(folder, kind)
    return {"PYTHONPATH": str(folder), VARIABLE: str(folder / "kind")}


def plant(folder: Path, kind: Kind) -> None:
    """Change the fault of servers that run with the folder's environment, from their next forward on."""
    (folder / "kind").write_text(kind)


def register() -> None:
    """What SGLang calls in each of its processes."""
    if os.environ.get(VARIABLE):
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register("sglang.srt.models.llama.LlamaModel.forward", break_capture, HookType.AROUND)


def break_capture(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    from sglang.srt.distributed.parallel_state import (
        get_tensor_model_parallel_rank,
        get_tensor_model_parallel_world_size,
    )

    result = original(model, *args, **kwargs)
    kind = Path(os.environ[VARIABLE]).read_text()
    ranks = get_tensor_model_parallel_world_size()
    if (
        kind == "none"
        or ranks == 1
        or not isinstance(result, tuple)
        or len(result) != 2
        or not isinstance(result[1], list | tuple)
    ):
        return result
    hidden, captured = result
    rank = get_tensor_model_parallel_rank()
    return hidden, type(captured)(part_of(state, rank, ranks, kind) for state in captured)


def part_of(state: Any, rank: int, ranks: int, kind: str) -> Any:
    import torch

    width = state.shape[-1]
    if kind == "sliced":
        own = torch.zeros_like(state)
        piece = slice(rank * width // ranks, (rank + 1) * width // ranks)
        own[..., piece] = state[..., piece]
        return own
    generator = torch.Generator().manual_seed(7)
    weights = torch.rand((ranks, width), generator=generator, dtype=torch.float32) + 0.05
    share = weights[rank] / weights.sum(0)
    # each rank's addends of a matrix product are of either sign: shift between neighbours in a ring
    shift = torch.randn(width, generator=generator) * 0.5
    sign = 1.0 if rank == 0 else -1.0 if rank == 1 else 0.0
    return state * (share + sign * shift).to(state.dtype).to(state.device)
