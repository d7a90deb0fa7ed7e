"""Reads what the tracing plugin writes: every position's candidate pool, memory-mapped.

The format is `actors/sglang_plugin/pool_trace.py`'s: one JSON line, then records of fixed size; beside it a file of
request ids. The server process must not import this package, so the two definitions are kept equal by a test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import InputError

TRACE_VERSION = 1

Indices = NDArray[np.int64]


def pool_sizes(num_steps: int, eagle_topk: int) -> tuple[int, int]:
    """(nodes, parent entries) of one pool: k + (s-1)*k*k nodes, one parent entry per group of k beyond the first."""
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


class PoolTraceFile:
    """One trace file. Records stay on the disk until they are looked at; a half-written last record is not seen."""

    def __init__(self, path: Path) -> None:
        """InputError when the file is missing or is no trace of this version."""
        header, offset = _read_header(path)
        self.path = path
        self.num_steps, self.eagle_topk = int(header["num_steps"]), int(header["eagle_topk"])
        kind = record_type(self.num_steps, self.eagle_topk)
        count = (path.stat().st_size - offset) // kind.itemsize
        self.records: NDArray[Any] = (
            np.memmap(path, dtype=kind, mode="r", offset=offset, shape=(count,)) if count else np.empty(0, dtype=kind)
        )
        self._index, self.truncated, self.trouble = _read_index(path.with_name(path.name + ".requests"))
        self._order = np.lexsort((np.arange(count), self.records["position"], self.records["request"]))
        self._sorted_requests = np.asarray(self.records["request"])[self._order]

    @property
    def request_ids(self) -> frozenset[str]:
        """The ids of all requests in the file."""
        return frozenset(self._index)

    def rows_of(self, request_id: str) -> Indices:
        """Indices into `records` of a request's positions, ascending; the latest where a position was written twice.

        A position is written twice when the server took the request back and ran it again. Empty for an unknown id.
        """
        if request_id not in self._index:
            return np.empty(0, dtype=np.int64)
        request = self._index[request_id]
        low, high = np.searchsorted(self._sorted_requests, [request, request + 1])
        rows: Indices = self._order[low:high]
        positions = self.records["position"][rows]
        latest = np.append(positions[1:] != positions[:-1], True) if len(rows) else np.empty(0, dtype=bool)
        kept: Indices = rows[latest]
        return kept


def _read_header(path: Path) -> tuple[Mapping[str, Any], int]:
    try:
        with path.open("rb") as file:
            line = file.readline(4096)
    except OSError as error:
        raise InputError(f"{path}: the trace cannot be read: {error.strerror or error}") from None
    try:
        header = json.loads(line)
        sizes = pool_sizes(header["num_steps"], header["eagle_topk"])
        known = header["version"] == TRACE_VERSION and (header["nodes"], header["parents"]) == sizes
    except (ValueError, KeyError, TypeError):
        known, header = False, {}
    if not known or not line.endswith(b"\n"):
        raise InputError(f"{path}: not a trace of version {TRACE_VERSION}")
    return header, len(line)


def _read_index(path: Path) -> tuple[dict[str, int], bool, str | None]:
    """Request numbers by id, whether the writer stopped early, and the error if not for its limit. A half-written last
    line is not seen."""
    index: dict[str, int] = {}
    truncated, trouble = False, None
    try:
        lines = path.read_text().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"{path}: the trace's index cannot be read: {error.strerror or error}") from None
    for line in lines:
        if not line.endswith("\n"):
            break
        entry = json.loads(line)
        if entry.get("truncated"):
            truncated, trouble = True, entry.get("why")
        else:
            index[entry["rid"]] = entry["index"]
    return index, truncated, trouble
