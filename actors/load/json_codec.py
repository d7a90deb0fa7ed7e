"""JSON to and from bytes: by orjson where it is installed (several times cheaper), else by the standard library."""

from __future__ import annotations

import json
from typing import Any

try:
    import orjson
except ImportError:

    def decode_json(data: bytes | str) -> Any:
        """The decoded value; ValueError when it is not JSON."""
        return json.loads(data)

    def encode_json(value: Any) -> bytes:
        """Compact UTF-8 JSON."""
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

else:

    def decode_json(data: bytes | str) -> Any:
        """The decoded value; ValueError when it is not JSON."""
        return orjson.loads(data)

    def encode_json(value: Any) -> bytes:
        """Compact UTF-8 JSON."""
        return orjson.dumps(value)
