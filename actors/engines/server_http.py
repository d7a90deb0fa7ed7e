"""The few questions that the engine itself asks its server. Loopback only, so proxies are never used."""

from __future__ import annotations

import json
import logging
import urllib.request
from typing import Any

LOG = logging.getLogger(__name__)

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


def freeze_garbage(base_url: str, timeout_s: float = 30.0) -> None:
    """Have every process of the server leave what it has made so far out of later garbage collections.

    SGLang asks this of itself when it has started (`_freeze_gc_after_server_warmup`, srt/entrypoints/http_server.py),
    but without a warm-up of its own it often does so before it listens, and goes without: one launch then collects
    for some tenths of a second now and then, and another of the same setting does not.
    """
    request = urllib.request.Request(base_url + "/freeze_gc", data=b"", method="POST")  # noqa: S310  (http only)
    try:
        with _OPENER.open(request, timeout=timeout_s):
            pass
    except OSError as problem:  # a release without it
        LOG.debug("the server does not freeze: %s", problem)
