"""Records what the draft is really fed, beside every tap of the target, on this rank.

The draft's side is read where its inner model is called (`spec_info.hidden_states`, before `fc`). For the target's side
a prompt's forward captures at every block instead of at the configured ones, by the loop's own indices (index i is the
stream entering block i, so 0 is the embedding output); the draft then gets only what it would have got.

`PREFIX.RANK.npz`: `fed` f4[tokens, width], `taps` f4[num_layers, tokens, hidden] (no tokens on ranks but 0, as the
streams are the same on all of them), `input_ids` i8[tokens]. Prompts are to be sent one at a time: the target's prefill
is then followed by the draft's over the same tokens.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .orders import ProbeOrder

LOG = logging.getLogger(__name__)


class FeedProbe:
    """One rank's probe; inert between `stop` and `start`."""

    def __init__(self) -> None:
        self._order: ProbeOrder | None = None
        self._target: Any = None
        self._handle: Any = None
        self._rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # fed, taps, input ids of one prompt
        self._pending: tuple[np.ndarray, np.ndarray] | None = None  # taps and ids that await the draft

    def start(self, worker: Any, order: ProbeOrder, *, rank: int) -> None:
        self._order, self._rank, self._rows, self._pending, self._written = order, rank, [], None, 0
        self._target = inner_model(worker._target_worker.model_runner.model)
        self._forward = self._target.forward
        self._target.forward = self._on_target
        draft = inner_model(worker._draft_worker.draft_runner.model)
        self._handle = draft.register_forward_pre_hook(self._on_draft, with_kwargs=True)

    def stop(self) -> None:
        if self._order is None:
            return
        self.flush()
        del self._target.forward  # the class's own is seen again
        self._handle.remove()
        self._order = self._target = self._handle = None

    def flush(self) -> None:
        """Write what was seen so far, once; the file appears whole or not at all."""
        if self._order is None or self._written == len(self._rows):
            return
        self._written = len(self._rows)
        path = Path(f"{self._order.prefix}.{self._rank}.npz")
        fresh = path.with_suffix(".part.npz")
        fed, taps, ids = zip(*self._rows, strict=True)
        try:
            np.savez(fresh, fed=np.concatenate(fed), taps=np.concatenate(taps, axis=1), input_ids=np.concatenate(ids))
            fresh.replace(path)
        except OSError as problem:  # the driver sees that the file is missing; the server must not die of it
            LOG.error("specsweep: cannot write %s: %s", path, problem)

    def _on_target(self, *args: Any, **kwargs: Any) -> Any:
        batch = batch_among(args, kwargs)
        mode = None if batch is None else batch.forward_mode
        if mode is None or not mode.is_extend() or mode.is_target_verify() or not self._is_ours(batch):
            return self._forward(*args, **kwargs)
        with capturing_every_block(self._target) as configured:
            hidden, captured = self._forward(*args, **kwargs)
        streams = unpack(captured, len(self._target.layers))
        ids = args[0] if args else kwargs["input_ids"]
        kept = self._order.max_tokens if self._order is not None and self._rank == 0 else 0
        self._pending = np.stack([to_numpy(stream[:kept]) for stream in streams]), ids.cpu().numpy().copy()
        return hidden, repack(captured, [streams[index] for index in configured])

    def _on_draft(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        batch, pending = batch_among(args, kwargs), self._pending
        if batch is None or pending is None or self._order is None:
            return
        self._pending = None
        taps, ids = pending
        left = self._order.max_tokens - sum(len(row[2]) for row in self._rows)
        fed = batch.spec_info.hidden_states
        if len(fed) == len(ids) and left > 0:
            self._rows.append((to_numpy(fed[:left]), taps[:, :left], ids[:left]))

    def _is_ours(self, batch: Any) -> bool:
        prefix = self._order.rid_prefix if self._order is not None else ""
        return not prefix or all(str(rid).startswith(prefix) for rid in batch.rids or [""])


@contextlib.contextmanager
def capturing_every_block(target: Any) -> Iterator[list[int]]:
    """Capture at every loop index for one forward; yields the configured indices, ascending as they are captured.

    Some classes look at a list, others at a mark on each block (srt/models/qwen2_moe.py): both are set and restored.
    """
    listed, blocks = target.layers_to_capture, list(target.layers)
    marks = [getattr(block, "_is_layer_to_capture", None) for block in blocks]
    target.layers_to_capture = list(range(len(blocks)))
    for block, mark in zip(blocks, marks, strict=True):
        if mark is not None:
            block._is_layer_to_capture = True
    try:
        yield sorted(index for index in set(listed) if 0 <= index < len(blocks))
    finally:
        target.layers_to_capture = listed
        for block, mark in zip(blocks, marks, strict=True):
            if mark is not None:
                block._is_layer_to_capture = mark


def unpack(captured: Any, count: int) -> list[torch.Tensor]:
    """The captured streams one by one; some classes return them side by side in one tensor."""
    if isinstance(captured, torch.Tensor):
        return list(captured.chunk(count, dim=-1))
    return list(captured)


def repack(captured: Any, kept: list[torch.Tensor]) -> Any:
    """`kept` in the form in which `captured` came."""
    return torch.cat(kept, dim=-1) if isinstance(captured, torch.Tensor) else type(captured)(kept)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A copy: on a CPU the array would else share SGLang's buffers, which the next batch overwrites."""
    return tensor.detach().float().cpu().numpy().copy()


def inner_model(model: Any) -> Any:
    """The stack of blocks inside a causal-LM wrapper; one level deeper for multimodal wrappers."""
    for name in ("language_model", "model"):
        inner = getattr(model, name, None)
        if inner is not None:
            return inner if hasattr(inner, "layers") else inner_model(inner)
    return model


def batch_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The ForwardBatch among a module's arguments, None without one."""
    for value in [*args, *kwargs.values()]:
        if hasattr(value, "forward_mode") and hasattr(value, "spec_info"):
            return value
    return None
