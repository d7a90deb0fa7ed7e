"""Logs the draft's whole candidate pool at every position, and makes every draft miss.

With drafts that cannot match, a verify step commits exactly the target's own token, so every position becomes the
start of a round. What a position's pool holds depends on the text before it only, because the draft's cache is rebuilt
from the target's states after each verification. From the pools, acceptance follows by computation for every smaller
number of steps and every number of draft tokens (`results.pool_replay`).

File: one JSON line (version, num_steps, eagle_topk, nodes, parents), then fixed-size little-endian records
(request index u4, position u4, tokens i4[nodes], scores f4[nodes], parents i4[parents]). `position` is the number of
tokens before the root, so the root is token number `position` of prompt plus output, counted from 0.
`FILE.requests` holds one JSON line per request: index and request id; a last line `{"truncated": true}` when the limit
was reached, with the error as `why` when the disk took no more. A chain (topk 1) has no scores: they are written as 0.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from .orders import Order

LOG = logging.getLogger(__name__)

TRACE_VERSION = 1


def pool_sizes(num_steps: int, eagle_topk: int) -> tuple[int, int]:
    """(nodes, parent entries) of one pool: k + (s-1)*k*k nodes (srt/speculative/eagle_utils.py)."""
    nodes = eagle_topk + (num_steps - 1) * eagle_topk**2
    parents = 0 if num_steps == 1 or eagle_topk == 1 else 1 + eagle_topk * (num_steps - 1)
    return nodes, parents


def record_type(num_steps: int, eagle_topk: int) -> np.dtype[Any]:
    """One record of the file."""
    nodes, parents = pool_sizes(num_steps, eagle_topk)
    return np.dtype(
        [
            ("request", "<u4"),
            ("position", "<u4"),
            ("tokens", "<i4", (nodes,)),
            ("scores", "<f4", (nodes,)),
            ("parents", "<i4", (parents,)),
        ]
    )


class PoolTrace:
    """One rank's trace. Only rank 0 writes; all ranks poison alike, or they would diverge."""

    def __init__(self) -> None:
        self._order: Order | None = None
        self._file: IO[bytes] | None = None
        self._requests: IO[str] | None = None
        self._indices: dict[str, int] = {}
        self._batch: tuple[list[str], list[int]] = ([], [])
        self._left = 0

    def start(self, order: Order, *, rank: int) -> None:
        assert order.trace is not None
        self._order, self._indices = order, {}
        self._type = record_type(order.num_steps, order.eagle_topk)
        self._left = order.trace.max_bytes
        if rank == 0:
            path = Path(order.trace.file)
            self._file = path.open("wb")
            self._requests = path.with_name(path.name + ".requests").open("w")
            nodes, parents = pool_sizes(order.num_steps, order.eagle_topk)
            header = {
                "version": TRACE_VERSION,
                "num_steps": order.num_steps,
                "eagle_topk": order.eagle_topk,
                "nodes": nodes,
                "parents": parents,
            }
            self._file.write(json.dumps(header).encode() + b"\n")

    def stop(self) -> None:
        for file in (self._file, self._requests):
            if file is not None:
                with self._ending_on_trouble():
                    file.close()
        self._order = self._file = self._requests = None

    def flush(self) -> None:
        for file in (self._file, self._requests):
            if file is not None:
                with self._ending_on_trouble():
                    file.flush()

    def on_draft_forward(self, original: Callable[..., Any], worker: Any, forward_batch: Any) -> Any:
        order = self._order
        if order is None or order.trace is None or forward_batch.forward_mode.is_idle():
            return original(worker, forward_batch)
        self._batch = (list(forward_batch.rids), forward_batch.seq_lens.tolist())
        parents, indices, tokens, probabilities = original(worker, forward_batch)
        if order.eagle_topk == 1:
            # A chain never reaches organize_draft_results.
            self._write(torch.zeros_like(tokens, dtype=torch.float32), tokens, None)
            tokens = torch.full_like(tokens, order.trace.poison_id)
        return parents, indices, tokens, probabilities

    def on_organize(
        self, original: Callable[..., Any], score_list: Any, token_list: Any, parents_list: Any, num_draft_token: int
    ) -> Any:
        order = self._order
        if order is None or order.trace is None or order.eagle_topk == 1:
            return original(score_list, token_list, parents_list, num_draft_token)
        scores = torch.cat(score_list, dim=1).flatten(1)
        parents = torch.cat(parents_list[:-1], dim=1) if len(parents_list) > 1 else None
        self._write(scores, torch.cat(token_list, dim=1), parents)
        kept_parents, indices, tokens = original(score_list, token_list, parents_list, num_draft_token)
        return kept_parents, indices, torch.full_like(tokens, order.trace.poison_id)

    def _write(self, scores: torch.Tensor, tokens: torch.Tensor, parents: torch.Tensor | None) -> None:
        if self._file is None or self._left <= 0:
            return
        rids, positions = self._batch
        rows = np.zeros(len(rids), dtype=self._type)
        rows["request"] = [self._index(rid) for rid in rids]
        rows["position"] = positions
        rows["tokens"] = tokens.cpu().numpy()
        rows["scores"] = scores.float().cpu().numpy()
        if parents is not None:
            rows["parents"] = parents.cpu().numpy()
        with self._ending_on_trouble():
            self._file.write(rows.tobytes())
            self._left -= rows.nbytes
            if self._left <= 0:
                self._note({"truncated": True})

    def _index(self, rid: str) -> int:
        if rid not in self._indices:
            self._indices[rid] = len(self._indices)
            with self._ending_on_trouble():
                self._note({"index": self._indices[rid], "rid": rid})
        return self._indices[rid]

    def _note(self, line: dict[str, Any]) -> None:
        if self._requests is not None:
            self._requests.write(json.dumps(line) + "\n")

    @contextlib.contextmanager
    def _ending_on_trouble(self) -> Iterator[None]:
        """A full disk ends the trace; the server must not die of it."""
        try:
            yield
        except OSError as problem:
            LOG.error("specsweep: the trace ends here: %s", problem)
            if self._left > 0:
                self._left = 0
                with contextlib.suppress(OSError):
                    self._note({"truncated": True, "why": str(problem)})
