"""Records what the draft is really fed, beside every tap of the target, on this rank.

The draft's side is read where its inner model is called (`spec_info.hidden_states`, before `fc`). For the target's side
a prompt's forward captures at every block instead of at the configured ones, by the loop's own indices (index i is the
stream entering block i, so 0 is the embedding output; classes that capture behind the last block do so when the layout
asks for it); the draft then gets only what it would have got.

`PREFIX.RANK.npz`: `fed` f4[tokens, width], `taps` f4[taps, tokens, hidden] (no tokens on ranks but 0, as the streams
are the same on all of them), `input_ids` i8[tokens]. Prompts are to be sent one at a time: the target's prefill is then
followed by the draft's over the same tokens. Where a class captures otherwise than every class that was read, the
forward is run again untouched, the server goes on, and `PREFIX.RANK.problem` says in one line what was met.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .cuda_graphs import set_prefill_graphs_aside
from .orders import ProbeOrder

LOG = logging.getLogger(__name__)

MARK = "_is_layer_to_capture"
BEHIND_LAST = frozenset({"self.end_layer", "num_layers", "self.config.num_hidden_layers"})
"""What loops compare with the list after their last block."""


class FeedProbe:
    """One rank's probe; inert between `stop` and `start`."""

    def __init__(self) -> None:
        self._order: ProbeOrder | None = None
        self._target: Any = None
        self._handle: Any = None
        self._rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # fed, taps, input ids of one prompt
        self._pending: tuple[np.ndarray, np.ndarray] | None = None  # taps and ids that await the draft

    def start(self, worker: Any, order: ProbeOrder, *, rank: int) -> None:
        target = inner_model(worker._target_worker.model_runner.model)
        if not hasattr(target, "layers_to_capture"):
            raise LookupError(f"no capture loop to probe in {type(target).__name__}: this class cannot be probed")
        self._order, self._rank, self._rows, self._pending, self._written = order, rank, [], None, 0
        self._target = target
        self._forward = self._target.forward
        self._target.forward = self._on_target
        self._bring_back = set_prefill_graphs_aside(
            worker._target_worker.model_runner, worker._draft_worker.draft_runner
        )
        draft = inner_model(worker._draft_worker.draft_runner.model)
        self._handle = draft.register_forward_pre_hook(self._on_draft, with_kwargs=True)

    def stop(self) -> None:
        if self._order is None:
            return
        self.flush()
        del self._target.forward  # the class's own is seen again
        self._handle.remove()
        self._bring_back()
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
            self._tell(f"cannot write {path}: {problem}")

    def _on_target(self, *args: Any, **kwargs: Any) -> Any:
        batch = batch_among(args, kwargs)
        mode = None if batch is None else batch.forward_mode
        if mode is None or not mode.is_extend() or mode.is_target_verify() or not self._is_ours(batch):
            return self._forward(*args, **kwargs)
        try:
            with capturing_every_block(self._target) as (configured, asked):
                hidden, captured = self._forward(*args, **kwargs)
            streams = unpack(captured, asked)
            fed = [streams[index] for index in configured if index < len(streams)]
            kept = self._order.max_tokens if self._order is not None and self._rank == 0 else 0
            # a multimodal wrapper hands embeddings to its language model, and the ids with the batch only
            ids = batch.input_ids.cpu().numpy().copy()
            self._pending = np.stack([to_numpy(stream[:kept]) for stream in streams]), ids
        except Exception as problem:  # SGLang's own way of running must not suffer from ours
            self._tell(f"{type(self._target).__name__} captures in another way: {type(problem).__name__}: {problem}")
            return self._forward(*args, **kwargs)
        return hidden, repack(captured, fed)

    def _tell(self, problem: str) -> None:
        """Leave word of what cannot be probed beside the files."""
        LOG.error("specsweep: %s", problem)
        if self._order is not None:
            with contextlib.suppress(OSError):
                Path(f"{self._order.prefix}.{self._rank}.problem").write_text(problem.splitlines()[0], "utf-8")

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
def capturing_every_block(target: Any) -> Iterator[tuple[list[int], int]]:
    """Capture at every loop index for one forward; yields the configured indices, ascending as they are captured, and
    how many are asked for now.

    Some loops look at a list, others at a mark on each block, which only blocks have that were marked once
    (srt/models/qwen2_moe.py): both are set and restored. N, behind the last block, is asked for when the layout has it.
    """
    listed, blocks = target.layers_to_capture, list(target.layers)
    marks = [getattr(block, MARK, None) for block in blocks]
    configured = captured_indices(target)
    every = [*range(len(blocks)), *(configured & {len(blocks)})]
    target.layers_to_capture = every
    if any(mark is not None for mark in marks):
        for block in blocks:
            setattr(block, MARK, True)
    try:
        yield sorted(configured), len(every)
    finally:
        target.layers_to_capture = listed
        for block, mark in zip(blocks, marks, strict=True):
            if mark is not None:
                setattr(block, MARK, mark)
            elif hasattr(block, MARK):
                delattr(block, MARK)


def captured_indices(target: Any) -> set[int]:
    """The loop indices at which a stack of blocks captures as it is set up now, which are the taps of its layout."""
    blocks = list(target.layers)
    listed = {index for index in target.layers_to_capture if 0 <= index <= len(blocks)}
    if not reads_marks(type(target)):
        return listed
    return {i for i, block in enumerate(blocks) if getattr(block, MARK, False)} | (listed & {len(blocks)})


def reads_marks(cls: type) -> bool:
    """Whether the loop that captures looks at marks and at no list, as its source says."""
    for owner in cls.__mro__:
        source = source_of(vars(owner).get("forward"))
        if "to_capture" in source:
            tested = set(re.findall(r"([\w.]+) in self\.layers_to_capture", source)) - BEHIND_LAST
            return MARK in source and not tested
    return False


def source_of(function: Any) -> str:
    """A function's source, empty if there is none. `inspect.getsource` would look at every module of the server for it,
    which takes a third of a second and every switch waits for it."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :] if code is not None else []
    return "".join(inspect.getblock(lines)) if lines else ""


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
