"""Files that `explain` reads: rows, server logs and `/server_info` dumps, told apart by what is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from results.external_row import ExternalRow
from results.external_row_file import read_rows
from results.server_info import is_server_info, server_info_row
from results.sglang_log import is_sglang_log, log_row, read_log
from search_spaces.errors import InputError

MAX_BYTES = 2_000_000_000


def read_observations(path: Path) -> tuple[ExternalRow, ...]:
    """All rows of one file. Raises `InputError` for one that cannot be read or is none of the three kinds."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES} bytes; cut it to the part that matters")
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not text.strip():
        raise InputError(f"{path}: empty; give JSONL rows, an SGLang server log or a /server_info dump")
    if text.lstrip().startswith(("{", "[")):
        content = _parsed(text)
        if is_server_info(content):
            return (server_info_row(content, path.name),)
        if isinstance(content, dict):
            # on one line it is a row like any other, and read as strictly; over several lines as a whole
            one_line = "\n" not in text.strip()
            return read_rows([text if one_line else json.dumps(content)], str(path))
        if isinstance(content, list) and content and all(map(is_server_info, content)):
            return tuple(server_info_row(dump, f"{path.name}:[{place}]") for place, dump in enumerate(content))
        if content is None and text.lstrip().startswith("{"):
            lines = text.splitlines()
            dumps = [_parsed(line) for line in lines if line.strip()]
            if all(is_server_info(dump) for dump in dumps):
                return tuple(server_info_row(dump, f"{path.name}:{n}") for n, dump in enumerate(dumps, start=1))
            return read_rows(lines, str(path))
    if is_sglang_log(text):
        return (log_row(read_log(text.splitlines()), path.name),)
    raise InputError(f"{path}: neither JSONL rows, nor an SGLang server log, nor a /server_info dump")


def _parsed(text: str) -> Any:
    """The JSON value that the whole text is, None when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
