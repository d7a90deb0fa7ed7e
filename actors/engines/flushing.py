"""What a server's answer to `/flush_cache` means, and asking again while it is busy."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

POLL_S = 0.1

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, kw_only=True)
class FlushRefusal:
    """`reason` is one line. While it is `busy` a server may be asked again."""

    reason: str
    busy: bool = False


def judge_flush(status: int, body: str) -> FlushRefusal | None:
    """Why a server that answered so has not flushed, None when it has. Pure.

    400 is how SGLang says that requests run or wait (`flush_cache`, srt/entrypoints/http_server.py); any other code is
    no answer of its flush and stays what it is.
    """
    if status == 200:
        return None
    said = " ".join(body.split())[:200] or ("requests are running" if status == 400 else _phrase(status))
    return FlushRefusal(reason=f"the server refused to flush (HTTP {status}): {said}", busy=status == 400)


def flush_when_idle(base_url: str, *, timeout_s: float, patience_s: float) -> str | None:
    """Why a server of our own would not flush, None when it did. A busy one is asked again for `patience_s`."""
    deadline = time.monotonic() + patience_s
    while (refused := _flush(base_url, timeout_s)) is not None:
        if not refused.busy or time.monotonic() > deadline:
            return refused.reason
        time.sleep(POLL_S)
    return None


def _flush(base_url: str, timeout_s: float) -> FlushRefusal | None:
    request = urllib.request.Request(base_url + "/flush_cache", data=b"", method="POST")  # noqa: S310  (http only)
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return judge_flush(answer.status, "")
    except urllib.error.HTTPError as problem:
        return judge_flush(problem.code, _body_of(problem))
    except OSError as problem:
        return FlushRefusal(reason=f"the server did not answer: {problem}")


def _body_of(problem: urllib.error.HTTPError) -> str:
    try:
        return problem.read(400).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


def _phrase(status: int) -> str:
    return http.client.responses.get(status, "no reason given")
