"""The JSONL format of observations measured elsewhere: one object a line, unknown keys and wrong values refused."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from results.external_row import ROLES, ExternalRow
from search_spaces.errors import InputError

_INTERNAL = ("source", "notes", "death")
FIELDS: tuple[str, ...] = tuple(item.name for item in fields(ExternalRow) if item.name not in _INTERNAL)

LARGEST = 10**15
"""No count, size or throughput of one server is larger; what is, is a slip."""
MOST_STEPS = 10_000
"""The same for the numbers of a triple and for layers."""


def _whole(value: Any, low: int = 0, high: int = LARGEST) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"a whole number of at least {low}")
    if value > high:
        raise ValueError(f"a whole number of at most {high}")
    return value


def _positive(value: Any) -> int:
    return _whole(value, 1)


def _small(value: Any) -> int:
    return _whole(value, 1, MOST_STEPS)


def _chunk(value: Any) -> int:
    return _whole(value, -1)


def _number(value: Any, low: float = 0.0, high: float = float(LARGEST)) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number")
    if not low <= value <= high:
        raise ValueError(f"a number from {low:g} to {high:g}")
    return float(value)


def _share(value: Any) -> float:
    return _number(value, 0.0, 1.0)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return " ".join(value.split())


def _list(value: Any, item: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError("a list")
    return tuple(item(entry) for entry in value)


def _ids(value: Any) -> tuple[int, ...]:
    return _list(value, lambda entry: _whole(entry, -1_000_000))


def _taps(value: Any) -> tuple[int, ...]:
    return _list(value, _whole)


def _role(value: Any) -> str:
    if value not in ROLES:
        raise ValueError(f"one of {', '.join(ROLES)}")
    return str(value)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a mapping")
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "label": _text,
    "target_class": _text,
    "num_layers": _small,
    "hidden_size": _positive,
    "layout_ids": _ids,
    "layout_taps": _taps,
    "trained_taps": _taps,
    "num_steps": _small,
    "eagle_topk": _small,
    "num_draft_tokens": _positive,
    "tp_size": _positive,
    "dp_size": _positive,
    "dp_attention": _switch,
    "sglang_version": _text,
    "accept_length": _number,
    "acceptance_by_position": lambda value: _list(value, _share),
    "histogram": lambda value: _list(value, _whole),
    "completion_tokens": _whole,
    "verify_steps": _whole,
    "drafts": _whole,
    "accepted": _whole,
    "output_throughput": _number,
    "baseline_throughput": _number,
    "concurrency": _positive,
    "context_tokens": _whole,
    "temperature": _number,
    "radix_cache": _switch,
    "cached_token_share": _share,
    "cuda_graph": _switch,
    "chunked_prefill_size": _chunk,
    "max_running_requests": _positive,
    "distinct_tokens": _whole,
    "output_tokens": _whole,
    "prompt_set": _text,
    "num_prompts": _whole,
    "role": _role,
    "flags": _mapping,
}


def read_row(content: Any, source: str) -> ExternalRow:
    """One row from a parsed JSON value. `source` (file:line) opens every error. A null counts as absent.

    Raises `InputError` for a value that is no object, an unknown key, or a value of a wrong type or range.
    """
    if not isinstance(content, dict):
        raise InputError(f"{source}: a row is a JSON object, not {type(content).__name__}")
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in _READERS:
            close = difflib.get_close_matches(str(key), FIELDS, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise InputError(f"{source}: unknown key {key!r}{hint}; legal keys: {', '.join(FIELDS)}")
        if value is None:
            continue
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            raise InputError(f"{source}: {key} must be {error}, not {_shown(value)}") from None
    return ExternalRow(**values, source=source)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def read_rows(lines: Iterable[str], file: str) -> tuple[ExternalRow, ...]:
    """All rows of a JSONL file. Blank lines are passed over. Raises `InputError` naming file, line and key."""
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        source = f"{file}:{number}"
        try:
            content = json.loads(line, parse_constant=_refuse_constant, object_pairs_hook=_distinct_keys)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: not a JSON object ({error})") from None
        rows.append(read_row(content, source))
    return tuple(rows)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"key {sorted(twice)[0]!r} stands twice")
    return dict(pairs)
