"""Planted faults of tensor parallelism: an SGLang plugin under which ranks hand the draft parts of the target's states.

`fault_environment(kind, folder)` gives the variables of a server in which, at tp above 1, every captured hidden state
is on rank r only a part that sums to it over the ranks (`partial`) or only the rank's slice, zero elsewhere (`sliced`).
The target itself is untouched, so its text stays right.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

VARIABLE = "TEST_TP_FAULT"
MODULE = "specsweep_test_tp_fault"


def fault_environment(kind: Literal["partial", "sliced"], folder: Path) -> dict[str, str]:
    """Write the plugin into `folder` and name it and the kind of fault; for a server's `environment`."""
    info = folder / f"{MODULE}-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{MODULE} = {MODULE}:register\n")
    (folder / f"{MODULE}.py").write_text(Path(__file__).read_text())
    return {"PYTHONPATH": str(folder), VARIABLE: kind}


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
    ranks = get_tensor_model_parallel_world_size()
    if ranks == 1 or not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], list | tuple):
        return result
    hidden, captured = result
    rank = get_tensor_model_parallel_rank()
    return hidden, type(captured)(part_of(state, rank, ranks) for state in captured)


def part_of(state: Any, rank: int, ranks: int) -> Any:
    import torch

    width = state.shape[-1]
    if os.environ[VARIABLE] == "sliced":
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
