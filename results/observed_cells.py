"""What a launch's cells were beside their requests, as a file: with the table of requests, all that was observed.

A record holds summaries. With this file and the table, every one of them can be computed again, by whatever rules hold
then.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from results.observations import CellObservation, RequestRow
from results.request_table import CellKey
from search_spaces.errors import InputError

OBSERVED_SCHEMA = 1
OBSERVED_FILE = "observed.json"

_FIELDS = {field.name: field for field in dataclasses.fields(CellObservation) if field.name != "rows"}


def encode_cells(cells: Sequence[CellObservation]) -> bytes:
    """JSON of everything but the rows, in the order of the cells."""
    content = [{name: getattr(cell, name) for name in _FIELDS} for cell in cells]
    return (json.dumps({"schema": OBSERVED_SCHEMA, "cells": content}, indent=2, allow_nan=False) + "\n").encode()


def decode_cells(
    content: bytes, rows_by_cell: Mapping[CellKey, Sequence[RequestRow]], *, name: str
) -> tuple[CellObservation, ...]:
    """The cells with their rows, as they were encoded. InputError, in one line beginning with `name`, when broken."""
    try:
        decoded = json.loads(content)
        if decoded["schema"] != OBSERVED_SCHEMA:
            raise InputError(f"{name}: schema {decoded['schema']}, this version reads {OBSERVED_SCHEMA}")
        return tuple(_cell(values, rows_by_cell) for values in decoded["cells"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{name}: not the cells of a launch: {type(error).__name__}: {error}") from None


def _cell(values: Mapping[str, Any], rows_by_cell: Mapping[CellKey, Sequence[RequestRow]]) -> CellObservation:
    known = {key: value for key, value in values.items() if key in _FIELDS}
    known["attempt_failures"] = tuple((reason, count) for reason, count in known.get("attempt_failures", ()))
    rows = rows_by_cell.get((known["concurrency"], known["request_rate"]), ())
    return CellObservation(**known, rows=tuple(rows))
