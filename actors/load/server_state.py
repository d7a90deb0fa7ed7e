"""What a running server says about itself around a cell: is it idle, is its cache empty, what has it counted."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from actors.engines.flushing import judge_flush
from actors.load.json_codec import decode_json
from results.acceptance import read_server_average

_POLL_S = 0.1
_CALL_TIMEOUT_S = 10.0
_UNREACHABLE = "unreachable"
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)

GENERATED = "sglang:generation_tokens_total"
VERIFIED = "sglang:spec_verify_calls_total"


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """Totals since the server's start, summed over its ranks; 0 for what has not happened yet."""

    tokens: int
    verify_steps: int


async def flush_when_idle(session: aiohttp.ClientSession, base_url: str, *, timeout_s: float) -> str | None:
    """Empty the prefix cache of an idle server: None when done and seen idle before and after, else what prevented it.

    SGLang refuses to flush while a request runs or waits (HTTP 400, `srt/managers/scheduler.py`, `flush_cache`); only
    its first data-parallel rank's refusal is reported, so the load of all ranks is read as well where the server has
    `/v1/loads`. A successful flush also resets `avg_spec_accept_length`.
    """
    deadline = time.monotonic() + timeout_s
    trouble = "never tried"
    while True:
        trouble, final = await _flush_once(session, base_url)
        if not trouble:
            return None
        if final or time.monotonic() >= deadline:
            return trouble
        await asyncio.sleep(_POLL_S)


async def _flush_once(session: aiohttp.ClientSession, base_url: str) -> tuple[str, bool]:
    """What stood in the way ("" for nothing), and whether trying again is useless."""
    busy = await _outstanding(session, base_url)
    if busy:
        return f"the server has {busy} requests of somebody else", False
    status, text = await _call(session, "POST", f"{base_url}/flush_cache")
    if status is None:
        return f"flush_cache: {text}", text.startswith(_UNREACHABLE)
    refused = judge_flush(status, text)
    if refused is not None:
        return refused.reason, not refused.busy
    busy = await _outstanding(session, base_url)
    return (f"the server has {busy} requests of somebody else", False) if busy else ("", True)


async def _outstanding(session: aiohttp.ClientSession, base_url: str) -> int | None:
    """Requests running or waiting on all ranks; None when the server does not tell."""
    status, text = await _call(session, "GET", f"{base_url}/v1/loads?include=core")
    if status != 200:
        return None
    loads = _json_object(text).get("loads")
    if not isinstance(loads, list):
        return None
    return sum(int(load.get("num_running_reqs", 0)) + int(load.get("num_waiting_reqs", 0)) for load in loads)


async def read_accept_length(session: aiohttp.ClientSession, base_url: str) -> tuple[float | None, str | None]:
    """The server's own average accept length since its last flush, or None and why: see `read_server_average`."""
    status, text = await _call(session, "GET", f"{base_url}/server_info")
    if status != 200:
        return None, f"/server_info: {text if status is None else f'HTTP {status}'}"
    return read_server_average(_json_object(text))


async def read_counters(session: aiohttp.ClientSession, base_url: str) -> Counters | str:
    """The server's totals, or the reason why it gives none."""
    status, text = await _call(session, "GET", f"{base_url}/metrics")
    if status != 200:
        return "the server was started without --enable-metrics" if status == 404 else f"/metrics: {status or text}"
    return counters_of(text)


def counters_of(exposition: str) -> Counters | str:
    """Both totals out of Prometheus text, summed over labels, or the reason why they are not there.

    A counter that has never been raised is absent; generated tokens count as 0 then only if SGLang's others are there.
    """
    totals = {GENERATED: 0.0, VERIFIED: 0.0}
    ours = False
    for name, value in _SAMPLE.findall(exposition):
        ours = ours or name.startswith("sglang:")
        if name in totals:
            totals[name] += float(value)
    if not ours:
        return "/metrics has nothing of SGLang's"
    return Counters(tokens=round(totals[GENERATED]), verify_steps=round(totals[VERIFIED]))


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = decode_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def _call(session: aiohttp.ClientSession, method: str, url: str) -> tuple[int | None, str]:
    """Status and body; None and the error in one line when there is no answer."""
    try:
        async with session.request(method, url, timeout=aiohttp.ClientTimeout(total=_CALL_TIMEOUT_S)) as response:
            return response.status, await response.text(errors="replace")
    except TimeoutError:
        return None, f"no answer within {_CALL_TIMEOUT_S:g} s"
    except (aiohttp.ClientError, OSError) as error:
        return None, " ".join(f"{_UNREACHABLE}: {error or type(error).__name__}".split())
