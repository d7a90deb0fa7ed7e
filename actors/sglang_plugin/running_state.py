"""What a rank runs, read wherever SGLang keeps it, and whether what was replaced is gone."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from .feed_probe import captured_indices, inner_model

Parts = dict[str, "weakref.ref[Any]"]


def describe(worker: Any) -> dict[str, Any]:
    """Triple and captured layers of this rank; a text of all values where SGLang's places disagree."""
    from sglang.srt.runtime_context import get_spec

    draft, context = worker._draft_worker, get_spec()
    inner = inner_model(worker._target_worker.model_runner.model)
    steps, tokens = "speculative_num_steps", "speculative_num_draft_tokens"
    return {
        "num_steps": agreed(*(getattr(place, steps) for place in (worker, draft, context))),
        "eagle_topk": agreed(
            draft.topk, context.speculative_eagle_topk, getattr(draft.draft_attn_backend, "topk", None)
        ),
        "num_draft_tokens": agreed(*(getattr(place, tokens) for place in (worker, draft, context))),
        "layers_to_capture": sorted(captured_indices(inner)) if hasattr(inner, "layers_to_capture") else None,
    }


def agreed(*values: int | None) -> int | str:
    """The value that all of them are, those aside that are not there."""
    known = [value for value in values if value is not None]
    return known[0] if len(set(known)) == 1 else " and ".join(str(value) for value in known)


def live_parts(worker: Any) -> Parts:
    """The attention backends and graphs that this rank runs with, without holding them."""
    draft, target = worker._draft_worker, worker._target_worker.model_runner
    found = {
        "draft_attn_backend": draft.draft_attn_backend,
        "draft_extend_attn_backend": draft.draft_extend_attn_backend,
        "draft_graphs": draft.cuda_graph_runner,
        "draft_extend_graphs": draft.cuda_graph_runner_for_draft_extend,
        "target_attn_backend": target.attn_backend,
        "target_graphs": getattr(target, "decode_cuda_graph_runner", None),
    }
    return {name: weakref.ref(part) for name, part in found.items() if part is not None}


def free(replaced: Parts, worker: Any) -> tuple[str, ...]:
    """Collect what an earlier state has left in cycles, with its graphs and buffers; names what stays all the same.

    What was made before SGLang froze its objects (`freeze_gc`, srt/utils/common.py) is out of the collector's reach,
    the state of the launch among it, with graphs for every batch size: it is thawed once for that.
    """
    gc.collect()
    if remaining_of(replaced, worker) and gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
        gc.freeze()
    return remaining_of(replaced, worker)


def remaining_of(replaced: Parts, worker: Any) -> tuple[str, ...]:
    """Which parts of an earlier state live on although this rank does not run with them any more."""
    running = {id(part()) for part in live_parts(worker).values()}
    return tuple(name for name, part in replaced.items() if part() is not None and id(part()) not in running)
