"""Request rows as a columnar file: one Parquet table per trial, all cells in it."""

from __future__ import annotations

import hashlib
import io
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results.observations import CellObservation, RequestRow
from search_spaces.errors import InputError

TABLE_SCHEMA = 1

CellKey = tuple[int, float | None]
"""(concurrency, None) of a closed loop, (0, requests per second) of an open one."""

RowsByCell = Mapping[CellKey, Sequence[RequestRow]]

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("concurrency", "int32"),
    ("request_rate", "float64"),
    ("prompt_id", "string"),
    ("sent_s", "float64"),
    ("first_token_s", "float64"),
    ("finished_s", "float64"),
    ("chunk_times_s", "list<float64>"),
    ("chunk_tokens", "list<int32>"),
    ("prompt_tokens", "int32"),
    ("cached_tokens", "int32"),
    ("completion_tokens", "int32"),
    ("verify_steps", "int32"),
    ("proposed_drafts", "int32"),
    ("correct_drafts", "int32"),
    ("histogram", "list<int32>"),
    ("output_ids", "list<int32>"),
    ("output_sha256", "string"),
    ("finish_reason", "string"),
    ("attempts", "int32"),
    ("error", "string"),
    ("first_sent_s", "float64"),
)
_TUPLES = frozenset({"chunk_times_s", "chunk_tokens", "histogram", "output_ids"})
_DERIVED = frozenset({"concurrency", "request_rate", "output_sha256"})


def rows_by_cell(cells: Sequence[CellObservation]) -> dict[CellKey, tuple[RequestRow, ...]]:
    """The rows of a launch's cells, as `encode_rows` takes them."""
    return {(cell.concurrency, cell.request_rate): cell.rows for cell in cells}


def output_sha256(output_ids: Sequence[int]) -> str:
    """SHA-256 of the ids as little-endian 32-bit integers: equal outputs are equal without keeping the ids."""
    content = array("i", output_ids)
    return hashlib.sha256(content.tobytes()).hexdigest()


def _arrow_schema() -> Any:
    import pyarrow as pa

    scalars = {"int32": pa.int32(), "float64": pa.float64(), "string": pa.string()}
    lists = {f"list<{name}>": pa.list_(kind) for name, kind in scalars.items()}
    fields = [pa.field(name, {**scalars, **lists}[kind]) for name, kind in _COLUMNS]
    return pa.schema(fields, metadata={"specsweep.requests.schema": str(TABLE_SCHEMA)})


def encode_rows(cells: RowsByCell) -> bytes:
    """A Parquet file of all rows, in the order of cells and of rows within them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {name: [] for name, _ in _COLUMNS}
    for (concurrency, request_rate), rows in cells.items():
        for row in rows:
            columns["concurrency"].append(concurrency)
            columns["request_rate"].append(request_rate)
            columns["output_sha256"].append(output_sha256(row.output_ids))
            for name in columns.keys() - _DERIVED:
                columns[name].append(getattr(row, name))
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=_arrow_schema()), buffer, compression="zstd")
    return buffer.getvalue()


def decode_rows(path: Path) -> dict[CellKey, tuple[RequestRow, ...]]:
    """Rows by cell, exactly as they were encoded. InputError naming the file when it is not such a table.

    A table from before `first_sent_s` was kept is read all the same.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a table of requests: {_one_line(error)}") from None
    version = (table.schema.metadata or {}).get(b"specsweep.requests.schema", b"none").decode()
    if version != str(TABLE_SCHEMA):
        raise InputError(f"{path}: schema {version}, this version reads {TABLE_SCHEMA}")
    rows: dict[CellKey, list[RequestRow]] = defaultdict(list)
    for entry in table.to_pylist():
        values = {name: value for name, value in entry.items() if name not in _DERIVED}
        for name in _TUPLES:
            values[name] = None if values[name] is None else tuple(values[name])
        rows[(entry["concurrency"], entry["request_rate"])].append(RequestRow(**values))
    return {key: tuple(cell) for key, cell in rows.items()}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
