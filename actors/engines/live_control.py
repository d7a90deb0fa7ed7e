"""The driver's side of a switch: give an order, flush, and wait until every rank has obeyed."""

from __future__ import annotations

import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.sglang_plugin.orders import (
    FOLDER_VARIABLE,
    TOKEN_VARIABLE,
    Answer,
    ControlFolder,
    Order,
    ProbeOrder,
    TraceOrder,
)
from search_spaces.config import EngineConfig, Triple

POLL_S = 0.02
ANSWER_GRACE_S = 30.0
BUSY_GRACE_S = 10.0
"""How long a busy server is asked again: requests that a measurement has just given up may still run."""
BUSY_POLL_S = 0.1
TRIPLE_NAMES = ("num_steps", "eagle_topk", "num_draft_tokens")

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, kw_only=True)
class Switched:
    """Every rank runs the order. `elapsed_s` is from the order to the last answer."""

    elapsed_s: float
    running: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NotSwitched:
    """What the server runs now is unknown: it must be launched anew. `reason` is one line. `no_plugin` when nobody
    answered at all: no other server would."""

    reason: str
    no_plugin: bool = False


def why_not_switchable(running: EngineConfig, wanted: EngineConfig, pools: Triple) -> str | None:
    """Why `wanted` needs a launch of its own beside a server in `running` with pools for `pools`; None if not."""
    if running.triple is None or wanted.triple is None or running.layout is None or wanted.layout is None:
        return "speculation is switched on or off"
    if running.tp_size != wanted.tp_size:
        return f"tp_size {running.tp_size} -> {wanted.tp_size}"
    if running.flags != wanted.flags:
        return "other flags"
    if len(running.layout) != len(wanted.layout):
        return "another number of taps"
    for name in TRIPLE_NAMES:
        if getattr(wanted.triple, name) > getattr(pools, name):
            return f"{name} {getattr(wanted.triple, name)} is beyond the server's pools for {pools}"
    return None


def with_room(config: EngineConfig, pools: Triple | None) -> EngineConfig:
    """What to launch so that `config` and everything up to `pools` can be switched to."""
    if pools is None or config.triple is None:
        return config
    larger = {name: max(getattr(config.triple, name), getattr(pools, name)) for name in TRIPLE_NAMES}
    return replace(config, triple=Triple(**larger))


class LiveControl:
    """The control folder of one engine's servers. `environment` goes to each of them at its start."""

    def __init__(self, folder: Path) -> None:
        token = secrets.token_hex(16)
        self._folder = ControlFolder.create(folder, token)
        self._sequence = 0
        self.environment = {FOLDER_VARIABLE: str(folder), TOKEN_VARIABLE: token}

    def forget(self) -> None:
        """Withdraw the last order, which a new server would take for its own."""
        self._folder.clear()

    def switch(
        self,
        base_url: str,
        config: EngineConfig,
        ids: tuple[int, ...] | None,
        *,
        ranks: int,
        graph_batch_sizes: tuple[int, ...] | None,
        timeout_s: float,
        is_alive: Callable[[], bool],
        trace: TraceOrder | None = None,
        probe: ProbeOrder | None = None,
    ) -> Switched | NotSwitched:
        """Bring the server into `config` (its layout written as `ids`); the caller has seen to it that nothing runs.

        Blocks for at most `timeout_s`. A server that stays busy refuses, and keeps running what it ran.
        """
        assert config.triple is not None
        self._sequence += 1
        order = Order(
            sequence=self._sequence,
            num_steps=config.triple.num_steps,
            eagle_topk=config.triple.eagle_topk,
            num_draft_tokens=config.triple.num_draft_tokens,
            ids=ids,
            graph_batch_sizes=graph_batch_sizes,
            trace=trace,
            probe=probe,
        )
        started = time.monotonic()
        self._folder.give(order)
        refused = _flush_when_idle(base_url, timeout_s)
        if refused:
            return NotSwitched(reason=refused)
        # the flush returns when rank 0 has obeyed; the others do so at the same time, or have no plugin
        patience_s = min(timeout_s, ANSWER_GRACE_S)
        deadline = time.monotonic() + patience_s
        while len(answers := self._folder.answers(order.sequence)) < ranks:
            if not is_alive():
                return NotSwitched(reason="the server died during the switch")
            if time.monotonic() > deadline:
                return NotSwitched(reason=_silence(answers, ranks, patience_s), no_plugin=not answers)
            time.sleep(POLL_S)
        return _judge(order, answers, time.monotonic() - started)


def _judge(order: Order, answers: tuple[Answer, ...], elapsed_s: float) -> Switched | NotSwitched:
    for answer in answers:
        if answer.error is not None:
            return NotSwitched(reason=f"rank {answer.rank}: {answer.error}")
        for name in TRIPLE_NAMES:
            if answer.running.get(name) != getattr(order, name):
                said = answer.running.get(name)
                return NotSwitched(reason=f"rank {answer.rank} runs {name} {said}, not {getattr(order, name)}")
    if any(answer.running != answers[0].running for answer in answers):
        return NotSwitched(reason="the ranks run different settings")
    return Switched(elapsed_s=elapsed_s, running=answers[0].running)


def _silence(answers: tuple[Answer, ...], ranks: int, waited_s: float) -> str:
    if not answers:
        return f"no rank answered in {waited_s:g} s: is the plugin loaded, and does this SGLang know load_plugins?"
    return f"{len(answers)} of {ranks} ranks answered in {waited_s:g} s"


def _flush_when_idle(base_url: str, timeout_s: float) -> str | None:
    """Why the server would not flush, None when it did. A busy server is asked again for a while."""
    deadline = time.monotonic() + min(timeout_s, BUSY_GRACE_S)
    while True:
        refused = _flush(base_url, timeout_s)
        if refused is None or not refused.endswith(BUSY) or time.monotonic() > deadline:
            return refused
        time.sleep(BUSY_POLL_S)


BUSY = "requests are running"


def _flush(base_url: str, timeout_s: float) -> str | None:
    """Why the server would not flush, None when it did."""
    request = urllib.request.Request(base_url + "/flush_cache", data=b"", method="POST")  # noqa: S310  (http only)
    try:
        with _OPENER.open(request, timeout=timeout_s):
            return None
    except urllib.error.HTTPError as problem:
        return f"the server refused to flush (HTTP {problem.code}): {BUSY}"
    except OSError as problem:
        return f"the server did not answer: {problem}"
