"""Trial records as JSON, strictly read: a wrong type, a missing field or another schema is refused by name."""

from __future__ import annotations

import json
from functools import lru_cache

from pydantic import TypeAdapter, ValidationError

from results.records import RECORD_SCHEMA, TrialRecord
from search_spaces.errors import InputError


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[TrialRecord]:
    return TypeAdapter(TrialRecord)


def encode_record(record: TrialRecord) -> bytes:
    """Indented UTF-8 JSON with a final newline. ValueError for a record of another schema."""
    if record.schema != RECORD_SCHEMA:
        raise ValueError(f"record {record.trial_id} has schema {record.schema}, this version writes {RECORD_SCHEMA}")
    return _adapter().dump_json(record, indent=2) + b"\n"


def decode_record(content: bytes, *, name: str) -> TrialRecord:
    """The record; InputError in one line that begins with `name` (the file) and names the first bad field."""
    try:
        schema = json.loads(content).get("schema")
    except (ValueError, AttributeError):
        raise InputError(f"{name}: not a trial record: not a JSON object") from None
    if schema != RECORD_SCHEMA:
        raise InputError(f"{name}: schema: {schema!r}, this version reads {RECORD_SCHEMA}")
    try:
        return _adapter().validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "record"
        raise InputError(f"{name}: not a trial record: {where}: {first['msg']}") from None
