"""The few questions that the engine itself asks its server. Loopback only, so proxies are never used."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_healthy(base_url: str, timeout_s: float = 5.0) -> bool:
    """True when `/health` answers 200. It generates nothing."""
    try:
        with _OPENER.open(base_url + "/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except OSError:  # refused, reset, timed out, or an HTTP error
        return False


def read_server_info(base_url: str, timeout_s: float = 30.0) -> dict[str, Any]:
    """`/server_info`; OSError when it does not answer, ValueError when it answers anything but an object."""
    with _OPENER.open(base_url + "/server_info", timeout=timeout_s) as answer:
        content = json.load(answer)
    if not isinstance(content, dict):
        raise ValueError(f"/server_info answered {type(content).__name__}, not an object")
    return content
