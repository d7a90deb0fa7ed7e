"""CUDA graphs of a server that is switched, traced or probed: for which batch sizes, anew for another layout, aside, at
what cost. Nothing here does anything on a CPU, where there are none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def graphs_for(sizes: Sequence[int] | None) -> Iterator[None]:
    """Within, graphs of draft and verification are captured for these batch sizes; none for an empty list.

    `build_adaptive_runtime_state` takes sizes too, but sets arguments with them that no runner reads in 0.5.23: those
    look at `cuda_graph_config` (model_executor/runner/base_cuda_graph_runner.py, `get_batch_sizes_to_capture`).
    """
    from sglang.srt.model_executor import cuda_graph_config
    from sglang.srt.runtime_context import get_context, get_exec

    if sizes is None or not hasattr(cuda_graph_config, "with_phase"):
        yield
        return
    found = get_exec().graph.cuda_graph_config
    changes = {"bs": list(sizes)} if sizes else {"backend": cuda_graph_config.Backend.DISABLED}
    phase = cuda_graph_config.Phase.DECODE
    get_context().override("specsweep.graphs", cuda_graph_config=cuda_graph_config.with_phase(found, phase, **changes))
    try:
        yield
    finally:
        get_context().override("specsweep.graphs", cuda_graph_config=found)


def capture_prefill_anew(runner: Any) -> float:
    """Graphs of the target's prefill hold the layers that were captured when they were made: make them again.

    Returns the seconds that took, 0 where there are none.
    """
    held = getattr(runner, "prefill_cuda_graph_runner", None)
    if held is None or held is getattr(runner, "eager_runner", None):
        return 0.0
    started = time.monotonic()
    runner.init_prefill_cuda_graph()
    return time.monotonic() - started


def set_prefill_graphs_aside(*runners: Any) -> Callable[[], None]:
    """Let these runners prefill without graphs, which pass by every hook; what is returned brings the graphs back."""
    held = [(runner, graphs) for runner in runners if (graphs := getattr(runner, "prefill_cuda_graph_runner", None))]
    for runner, _ in held:
        runner.prefill_cuda_graph_runner = getattr(runner, "eager_runner", None)

    def bring_back() -> None:
        for runner, graphs in held:
            runner.prefill_cuda_graph_runner = graphs

    return bring_back


def graph_costs(worker: Any) -> tuple[float, float]:
    """(seconds, GB) that the graphs of draft and verification have taken so far, as SGLang keeps account; 0 without."""
    counted = (getattr(worker, f"graph_{what}_usage", None) or {} for what in ("time", "memory"))
    seconds, gb = (float(sum(usage.values())) for usage in counted)
    return seconds, gb
