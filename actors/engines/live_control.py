"""The driver's side of a switch: give an order, flush, and wait until every rank has obeyed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.engines.flushing import flush_when_idle
from actors.engines.launch_log import MACHINE
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
TRIPLE_NAMES = ("num_steps", "eagle_topk", "num_draft_tokens")

NOT_WHILE_RUNNING = (
    "enable_dp_attention",
    "enable_multi_layer_eagle",
    "enable_two_batch_overlap",
    "enable_pdmux",
    "speculative_adaptive",
)
"""Arguments under which a state that is built later is not what a launch builds
(`adaptive_unsupported_reason`, srt/speculative/adaptive_spec_params.py)."""


@dataclass(frozen=True, kw_only=True)
class Switched:
    """Every rank runs the order, as it says itself. `elapsed_s` is from the order to the last answer.

    `graphs_s` of it were spent on CUDA graphs, which take `graphs_gb` more GPU memory: those of the rank with most.
    `not_freed` names what some rank still holds of the state before.
    """

    elapsed_s: float
    running: Mapping[str, Any]
    graphs_s: float
    graphs_gb: float
    not_freed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NotSwitched:
    """What the server runs now is unknown: it must be launched anew. `reason` is one line. `for_good` when no other
    with its flags would be switched either, as nobody has ever answered or an argument forbids it. `of_machine` when a
    disk is to blame that is full or fails, which says nothing about switching."""

    reason: str
    for_good: bool = False
    of_machine: bool = False


def why_not_switchable(room: EngineConfig, wanted: EngineConfig) -> str | None:
    """Why `wanted` needs a launch of its own beside a server that was launched as `room`; None if not."""
    if room.triple is None or wanted.triple is None or room.layout is None or wanted.layout is None:
        return "speculation is switched on or off"
    if room.tp_size != wanted.tp_size:
        return f"tp_size {room.tp_size} -> {wanted.tp_size}"
    if room.flags != wanted.flags:
        return "other flags"
    if len(room.layout) != len(wanted.layout):
        return "another number of taps"
    for name in TRIPLE_NAMES:
        if getattr(wanted.triple, name) > getattr(room.triple, name):
            return f"{name} {getattr(wanted.triple, name)} is beyond the server's pools for {room.triple}"
    return None


def why_never_switchable(args: Mapping[str, Any]) -> str | None:
    """Why a server with these arguments can only be launched; None if it can be switched."""
    found = [name for name in NOT_WHILE_RUNNING if args.get(name)]
    return f"SGLang builds nothing anew while it runs with {found[0]}" if found else None


def with_room(config: EngineConfig, pools: Triple | None) -> EngineConfig:
    """What to launch so that `config` and everything up to `pools` can be switched to."""
    if pools is None or config.triple is None:
        return config
    larger = {name: max(getattr(config.triple, name), getattr(pools, name)) for name in TRIPLE_NAMES}
    return replace(config, triple=Triple(**larger))


class LiveControl:
    """The control folder of one engine's servers. `environment` goes to each of them at its start.

    `heard` is True once some rank has answered an order, of this engine's or of one before it: the plugin loads.
    """

    def __init__(self, folder: Path, *, heard: bool = False) -> None:
        token = secrets.token_hex(16)
        self._folder = ControlFolder.create(folder, token)
        self._sequence = 0
        self.heard = heard
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
        try:
            self._folder.give(order)
        except OSError as problem:
            return NotSwitched(reason=f"the order cannot be written: {problem}", of_machine=True)
        refused = flush_when_idle(base_url, timeout_s=timeout_s, patience_s=min(timeout_s, BUSY_GRACE_S))
        if refused:
            return NotSwitched(reason=refused)
        # the flush returns when rank 0 has obeyed; the others do so at the same time, or have no plugin
        patience_s = min(timeout_s, ANSWER_GRACE_S)
        deadline = time.monotonic() + patience_s
        while len(answers := self._folder.answers(order.sequence)) < ranks:
            if not is_alive():
                return NotSwitched(reason="the server died during the switch")
            if time.monotonic() > deadline:
                self.heard = self.heard or bool(answers)
                reason = _silence(answers, ranks, patience_s, heard=self.heard)
                return NotSwitched(reason=reason, for_good=not self.heard)
            time.sleep(POLL_S)
        self.heard = True
        return _judge(config, answers, time.monotonic() - started)


def _judge(config: EngineConfig, answers: tuple[Answer, ...], elapsed_s: float) -> Switched | NotSwitched:
    """A layout's taps are the indices of the target's loop at which it captures (`search_spaces.capture`)."""
    assert config.layout is not None
    wanted: dict[str, Any] = {name: getattr(config.triple, name) for name in TRIPLE_NAMES}
    wanted["layers_to_capture"] = sorted(config.layout)
    for answer in answers:
        if answer.error is not None:
            blamed = MACHINE.search(answer.error) is not None
            return NotSwitched(reason=f"rank {answer.rank}: {answer.error}", of_machine=blamed)
        for name, value in wanted.items():
            if answer.running.get(name) != value:
                return NotSwitched(reason=f"rank {answer.rank} runs {name} {answer.running.get(name)}, not {value}")
    return Switched(
        elapsed_s=elapsed_s,
        running=answers[0].running,
        graphs_s=max(answer.graphs_s for answer in answers),
        graphs_gb=max(answer.graphs_gb for answer in answers),
        not_freed=tuple(sorted({part for answer in answers for part in answer.not_freed})),
    )


def _silence(answers: tuple[Answer, ...], ranks: int, waited_s: float, *, heard: bool) -> str:
    if not answers and heard:
        return f"no rank answered in {waited_s:g} s, as some did before: does it hang, or is its disk full?"
    if not answers:
        return f"no rank answered in {waited_s:g} s: is the plugin loaded, and does this SGLang know load_plugins?"
    return f"{len(answers)} of {ranks} ranks answered in {waited_s:g} s"
