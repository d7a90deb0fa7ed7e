"""A running server takes another layout and triple, through SGLang's own adaptive machinery.

`EAGLEWorkerV2.build_adaptive_runtime_state` and `apply_runtime_state` (srt/speculative/eagle_worker_v2.py, 0.5.20 and
later) build attention backends and graphs for another number of steps; they are meant for SGLang's adaptive mode,
which changes steps only. Here topk and draft tokens change with them, so both workers are set *before* the build:
the build ends by restoring what it found, and that must already be a legal state.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .cuda_graphs import capture_prefill_anew, graph_costs, graphs_for
from .feed_probe import FeedProbe, captured_indices, inner_model
from .orders import Answer, ControlFolder, Order
from .pool_trace import PoolTrace
from .running_state import describe, free, live_parts

LOG = logging.getLogger(__name__)


class Switch:
    """One rank's side. Orders are taken inside `Scheduler.flush_cache`, after it has succeeded, so nothing runs."""

    def __init__(self, control: ControlFolder, trace: PoolTrace, probe: FeedProbe) -> None:
        self._control, self._trace, self._probe = control, trace, probe
        self._sequence = 0

    def on_flush(self, original: Callable[..., bool], scheduler: Any, *args: Any, **kwargs: Any) -> bool:
        flushed = original(scheduler, *args, **kwargs)
        self._trace.flush()
        self._probe.flush()
        worker = getattr(scheduler, "draft_worker", None)
        if not flushed or worker is None:
            return flushed
        try:
            order = self._control.take(after=self._sequence)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            LOG.error("specsweep: cannot read the order: %s", problem)
            return flushed
        if order is not None:
            self._sequence = order.sequence
            self._obey(worker, order)
        return flushed

    def _obey(self, worker: Any, order: Order) -> None:
        started, error, seen = time.monotonic(), None, Seen()
        try:
            self._trace.stop()
            self._probe.stop()
            seen = switch_over(worker, order)
            if order.trace is not None:
                self._trace.start(order, rank=tp_rank())
            if order.probe is not None:
                self._probe.start(worker, order.probe, rank=tp_rank())
        except Exception as problem:  # whatever it is, the driver must hear of it: it relaunches
            LOG.exception("specsweep: order %d failed", order.sequence)
            error = f"{type(problem).__name__}: {problem}".splitlines()[0]
        answer = Answer(
            sequence=order.sequence,
            rank=tp_rank(),
            error=error,
            elapsed_s=time.monotonic() - started,
            running=seen.running,
            graphs_s=seen.graphs_s,
            graphs_gb=seen.graphs_gb,
            not_freed=seen.not_freed,
        )
        try:
            self._control.answer(answer)
        except OSError as problem:  # the driver waits in vain and launches; the server must not die of a full disk
            LOG.error("specsweep: cannot answer order %d: %s", order.sequence, problem)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a rank runs after a switch, and what that cost it; see `Answer`."""

    running: Mapping[str, Any] = field(default_factory=dict)
    graphs_s: float = 0.0
    graphs_gb: float = 0.0
    not_freed: tuple[str, ...] = ()


def switch_over(worker: Any, order: Order) -> Seen:
    """Obey, free what ran before, and read back what runs now. Raises whatever SGLang raises."""
    replaced, (seconds_before, gb_before) = live_parts(worker), graph_costs(worker)
    prefill_s = apply_order(worker, order)
    seconds, gb = graph_costs(worker)
    return Seen(
        not_freed=free(replaced, worker),
        running=describe(worker),
        graphs_s=prefill_s + seconds - seconds_before,
        graphs_gb=gb - gb_before,
    )


def tp_rank() -> int:
    """This process's rank within tensor parallelism."""
    from sglang.srt.distributed.parallel_state import get_tensor_model_parallel_rank

    return int(get_tensor_model_parallel_rank())


def apply_order(worker: Any, order: Order) -> float:
    """Bring target and draft of this rank into the order's layout and triple. Raises whatever SGLang raises.

    Returns the seconds that went into graphs of the target's prefill, which no account of SGLang's adds up.
    """
    from sglang.srt.runtime_context import get_context

    draft, target = worker._draft_worker, worker._target_worker.model_runner
    prefill_s = capture_prefill_anew(target) if set_layers(target.model, order.ids) else 0.0
    for side in (worker, draft):
        side.topk = order.eagle_topk
        side.speculative_num_steps = order.num_steps
        side.speculative_num_draft_tokens = order.num_draft_tokens
    get_context().override(
        "specsweep.switch",
        speculative_eagle_topk=order.eagle_topk,
        speculative_num_steps=order.num_steps,
        speculative_num_draft_tokens=order.num_draft_tokens,
    )
    sizes = None if order.graph_batch_sizes is None else list(order.graph_batch_sizes)
    with building_for(draft), graphs_for(sizes):
        state = worker.build_adaptive_runtime_state(order.num_steps, order.num_draft_tokens, cuda_graph_bs=sizes)
    worker.speculative_num_steps = -1  # else apply_runtime_state returns at once when the steps are unchanged
    worker.apply_runtime_state(state)
    return prefill_s


@contextlib.contextmanager
def building_for(draft: Any) -> Iterator[None]:
    """Placement and kernels of the draft, in which SGLang itself builds states (`EAGLEWorkerV2.init_cuda_graphs`)."""
    from sglang.srt.speculative import eagle_worker_v2

    with contextlib.ExitStack() as stack:
        if (placement := getattr(draft, "parallel_layout", None)) is not None:
            stack.enter_context(eagle_worker_v2.draft_tp_context(placement))
        for name in ("speculative_moe_backend_context", "speculative_moe_a2a_backend_context"):
            if (context := getattr(eagle_worker_v2, name, None)) is not None:
                stack.enter_context(context())
        yield


def set_layers(model: Any, ids: tuple[int, ...] | None) -> bool:
    """Point the target's capture at other layers; True when they are others than before, or nobody can tell.

    On mixture-of-experts targets the setter marks layers one by one and never clears a mark (`_is_layer_to_capture`,
    srt/models/qwen2_moe.py), so a second layout would capture both: the marks are cleared first.
    """
    inner = inner_model(model)
    known = hasattr(inner, "layers_to_capture")
    before = captured_indices(inner) if known else None
    for module in model.modules():
        if getattr(module, "_is_layer_to_capture", False):
            module._is_layer_to_capture = False
    model.set_eagle3_layers_to_capture(None if ids is None else list(ids))
    return not known or captured_indices(inner) != before
