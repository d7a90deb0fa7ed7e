"""Which server to launch so that it can be switched: only one that SGLang resolves to the very same arguments.

SGLang chooses by the triple at a launch and never again: on Hopper and SM100 an MHA target gets another attention
backend for topk 1 than for a tree (`get_default_attn_backend`, srt/arg_groups/model_override_base.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from actors.engines.command import server_args
from actors.engines.guarded_process import MARKER, sweep_leftovers
from actors.engines.live_control import TRIPLE_NAMES, with_room
from actors.engines.preflight import FoundEngine, Resolution, ask_engine
from actors.engines.server_spec import ServerSpec
from actors.engines.switch_history import SwitchHistory
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import EnvironmentProblem

THE_TRIPLE = frozenset(f"speculative_{name}" for name in TRIPLE_NAMES)


class Rooms:
    """What SGLang on this group's devices makes of configurations, asked once each.

    `triples` are those of the sweep: they are asked together, as a question takes seconds and one triple more 0.03 s.
    Where SGLang could not be asked, it is asked again for the next launch. Room that the `history` knows to fail is not
    made again. `close` may be called from another thread.
    """

    MOST_AT_ONCE = 500

    def __init__(
        self,
        spec: ServerSpec,
        pools: Triple,
        triples: tuple[Triple, ...] = (),
        history: SwitchHistory | None = None,
    ) -> None:
        self._spec, self._pools, self._triples = spec, pools, triples
        self._history = SwitchHistory() if history is None else history
        self._known: dict[EngineConfig, Resolution] = {}
        self._problem: str | None = None  # why there is no answer, since the last launch
        self._asking = self._closed = False

    def to_launch(self, config: EngineConfig, *, exact: bool = True) -> tuple[EngineConfig, str | None]:
        """What to launch for `config`, with as much room as can be had and, if `exact`, leaves it what it is; and why
        that is not all."""
        self._problem = None
        first: str | None = None
        for room in self._larger(config):
            why = None
            if room != config:
                why = self._history.room_problem(room) or (self.difference(room, config) if exact else None)
            if why is None:
                return room, first
            first = first or why
        return config, first

    def _larger(self, config: EngineConfig) -> Iterator[EngineConfig]:
        """Room for all triples; for a chain also room for all chains."""
        yield with_room(config, self._pools)
        if config.triple is not None and config.triple.eagle_topk == 1:
            steps = self._pools.num_steps
            yield with_room(config, Triple(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1))

    def difference(self, room: EngineConfig, wanted: EngineConfig) -> str | None:
        """In what a server launched as `room` and switched to `wanted` differs from one launched as `wanted`, in one
        line; None if in nothing.

        On a CPU nothing does: both attention backends are given (`command.CPU_ARGS`).
        """
        if room == wanted or self._spec.device == "cpu":
            return None
        self._ask(room, wanted)
        if self._problem is not None and not self._knows(room, wanted):
            return _unknown(room, wanted, self._problem)
        with_more, alone = self._known[_key(room)], self._known[_key(wanted)]
        if with_more.error is not None or alone.error is not None:
            return f"SGLang refuses {room.triple if with_more.error else wanted.triple}"
        names = [name for name in _differing(with_more.args, alone.args) if name not in THE_TRIPLE]
        told = [f"{name} {with_more.args.get(name)} instead of {alone.args.get(name)}" for name in names]
        return f"with room for {room.triple} SGLang would run {', '.join(told)}" if told else None

    def unchecked(self, room: EngineConfig, wanted: EngineConfig) -> str | None:
        """Why the last `difference` between these two rests on no answer, in one line; None if it does, or if nothing
        had to be asked."""
        if room == wanted or self._problem is None or self._knows(room, wanted):
            return None
        return f"not checked whether a launch of its own would get other arguments: {self._problem}"

    def close(self) -> None:
        """End a question that is being asked, and ask no more."""
        self._closed = True
        while self._asking:  # it may be about to start
            sweep_leftovers(self._spec.owner)
            time.sleep(0.02)

    def _knows(self, *configs: EngineConfig) -> bool:
        return all(_key(config) in self._known for config in configs)

    def _ask(self, *configs: EngineConfig) -> None:
        """Fill `_known`, or `_problem` when SGLang cannot be asked."""
        if self._problem is not None or self._knows(*configs):
            return
        siblings = (replace(configs[0], triple=triple) for triple in self._triples[: self.MOST_AT_ONCE])
        keys = [key for key in dict.fromkeys(map(_key, (*configs, *siblings))) if key not in self._known]
        spec = self._spec
        questions = [server_args(spec, key, port=30000, rendezvous_port=30100, draft_config=None) for key in keys]
        engine = FoundEngine(python=spec.python, version=spec.sglang_version, cpu_stand_ins=spec.stand_ins)
        # marked like a server, so that whoever ends this engine's processes finds it
        marks = {MARKER: spec.owner, "SPT_NOENV": "1"}
        environment = {**spec.environment, "CUDA_VISIBLE_DEVICES": ",".join(spec.device_ids), **marks}
        self._asking = True
        try:
            if self._closed:
                raise EnvironmentProblem("the engine is closed")
            self._known |= zip(keys, ask_engine(engine, spec.device, questions, environment=environment), strict=True)
        except EnvironmentProblem as problem:
            self._problem = str(problem)
        finally:
            self._asking = False


def _key(config: EngineConfig) -> EngineConfig:
    """The layout is no argument: it is written into the draft's config."""
    return replace(config, layout=())


def _unknown(room: EngineConfig, wanted: EngineConfig, problem: str) -> str | None:
    """The one difference that is known to be made where SGLang cannot be asked: between a chain and a tree."""
    topks = [config.triple.eagle_topk if config.triple is not None else 0 for config in (room, wanted)]
    return problem if (topks[0] == 1) != (topks[1] == 1) else None


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
