"""An engine that launches once and then switches: weights are loaded once for all layouts and triples of a TP size."""

from __future__ import annotations

import logging
from dataclasses import replace

from actors.engines.command import redact, server_args, server_command
from actors.engines.draft_config import override_ids, write_draft_config
from actors.engines.live_control import (
    TRIPLE_NAMES,
    LiveControl,
    NotSwitched,
    Switched,
    why_never_switchable,
)
from actors.engines.plugin_folder import with_plugin
from actors.engines.rooms import Rooms
from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from actors.engines.switch_history import SwitchHistory
from actors.engines.switch_plan import Running, next_step
from actors.sglang_plugin.orders import ProbeOrder, TraceOrder
from results.failures import Failure, Kind
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, Triple
from search_spaces.dialects import Inexpressible, dialect_of

LOG = logging.getLogger(__name__)


class SwitchingServer:
    """An `Engine` around `SglangServer`. Launches with room for `pools`; switches where layout or triple alone differ.

    Where SGLang would choose other arguments for a server with room than for the one that is asked, or where a server
    with room fails for what may be its size, one with less room is launched, in the end the one that is asked, and its
    findings say why; `triples` are those of the sweep (see `Rooms`). A failed switch becomes a launch of what is asked,
    whose findings say why, a failed trace or probe a failure. Whether the next server is switched at all, `history`
    says. Whatever comes of it, every server start is counted in what is returned.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        pools: Triple,
        triples: tuple[Triple, ...] = (),
        graph_batch_sizes: tuple[int, ...] | None = None,
        switch_timeout_s: float = 300.0,
        history: SwitchHistory | None = None,
    ) -> None:
        self._spec = spec
        self._graph_batch_sizes, self._switch_timeout_s = graph_batch_sizes, switch_timeout_s
        self._history = SwitchHistory() if history is None else history
        self._control = LiveControl(spec.work_dir / "control", heard=self._history.heard)
        self._server = SglangServer(with_plugin(spec, self._control.environment))
        self._rooms = Rooms(spec, pools, triples, self._history)
        self._running: Running | None = None

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        applied = self._bring_into(config)
        unchecked = None if self._running is None else self._rooms.unchecked(self._running.room, config)
        if isinstance(applied, Failure) or unchecked is None:
            return applied
        return _with_findings(applied, unchecked)

    def trace(self, config: EngineConfig, order: TraceOrder) -> LaunchObservation | Failure:
        """Bring the server into `config` and have rank 0 log every draft's candidate pool, from now to the next order.

        Until the next `apply` every draft misses: nothing measured meanwhile is a measurement, so one server with all
        the room will do for every triple. Without CUDA graphs, which would pass by the hook. The caller flushes the
        server to have the file complete on the disk.
        """
        return self._bring_into(config, order)

    def probe(self, config: EngineConfig, order: ProbeOrder) -> LaunchObservation | Failure:
        """Bring the server into `config` and have every rank record what its draft is fed, from now to the next order.

        Outputs and acceptance stay what they are, times do not. The caller sends prompts one at a time and flushes the
        server to have the files complete on the disk.
        """
        return self._bring_into(config, order)

    @property
    def base_url(self) -> str:
        return self._server.base_url

    def failure_now(self) -> Failure | None:
        return self._server.failure_now()

    def log_tail(self, max_bytes: int = 65536) -> str:
        return self._server.log_tail(max_bytes)

    def close(self) -> None:
        self._running = None
        self._server.close()
        self._rooms.close()

    def _bring_into(
        self, config: EngineConfig, order: TraceOrder | ProbeOrder | None = None
    ) -> LaunchObservation | Failure:
        before = self._server.starts
        return self._steps_into(config, order).counted(self._server.starts - before)

    def _steps_into(self, config: EngineConfig, order: TraceOrder | ProbeOrder | None) -> LaunchObservation | Failure:
        """Step by step. It ends: a room is launched twice at most, and after a failed switch `config` itself."""
        if self._server.failure_now() is not None:
            self._running = None
        ordered, why_launched = order is not None, self._forbidden(config)
        distrust = why_launched or self._history.distrust(config, ordered=ordered)
        if order is not None and distrust is not None:
            return _not_obeyed(order, NotSwitched(reason=distrust))
        told: list[str] = []  # of this trial only: those that are switched to later were not launched
        while True:
            step = next_step(self._running, config, ordered=ordered, trusted=distrust is None, rooms=self._rooms)
            if step == "keep":
                assert self._running is not None
                return _with_findings(self._running.launch, *told)
            if step == "switch":
                switched = self._switch(config, order)
                if isinstance(switched, LaunchObservation):
                    return _with_findings(switched, *told)
                if order is not None:
                    return _not_obeyed(order, switched)
                distrust = why_launched = switched.reason
                continue
            told += [] if why_launched is None else [f"launched anew: {why_launched}"]
            told += [] if step.less is None else [f"launched with less room: {step.less}"]
            failure = self._launch(step.room)
            if failure is None:
                continue
            if step.room == config or not self._history.room_failed(step.room, failure):
                return failure
            LOG.warning("a server with room for %s failed, launching again: %s", step.room.triple, failure.message)

    def _forbidden(self, config: EngineConfig) -> str | None:
        """Why no server of this configuration is ever switched; None without such a reason."""
        if config.triple is None:
            return None
        return why_never_switchable({**self._spec.args, **dict(config.flags)})

    def _launch(self, room: EngineConfig) -> Failure | None:
        """Launch a server as `room`, whatever runs."""
        self._running = None
        self._control.forget()
        # anew: else a server that was launched like this would be kept, whatever it runs by now
        launched = self._server.apply(room, anew=True)
        if isinstance(launched, Failure):
            return launched
        self._history.started(room)
        self._running = Running(room=room, config=room, launch=launched)
        return None

    def _switch(self, config: EngineConfig, order: TraceOrder | ProbeOrder | None) -> LaunchObservation | NotSwitched:
        """Switch what runs. After a failure nobody knows what that is."""
        running, self._running = self._running, None
        assert running is not None
        switched = self._give(running, config, order)
        if isinstance(switched, Switched):
            try:
                launch = self._after_switch(running, config, switched)
            except OSError as problem:
                reason = f"the draft's config cannot be written: {problem}"
                switched = NotSwitched(reason=reason, of_machine=True)
        self._history.heard = self._control.heard
        if isinstance(switched, NotSwitched):
            LOG.warning("switch failed: %s", switched.reason)
            self._history.not_switched(switched, config, ordered=order is not None)
            return switched
        self._history.switched(ordered=order is not None)
        self._running = Running(room=running.room, config=config, launch=launch, ordered=order is not None)
        if not switched.not_freed:
            return launch
        return _with_findings(launch, f"the switch has not freed what ran before: {', '.join(switched.not_freed)}")

    def _give(
        self, running: Running, config: EngineConfig, order: TraceOrder | ProbeOrder | None
    ) -> Switched | NotSwitched:
        assert config.layout is not None
        dialect = dialect_of(self._spec.target.architecture, self._spec.sglang_version)
        ids = dialect.ids_for(config.layout, self._spec.target.num_layers)
        if isinstance(ids, Inexpressible):
            return NotSwitched(reason=ids.reason)
        never = why_never_switchable(running.launch.effective_args)  # as the server has resolved them
        if never is not None:
            return NotSwitched(reason=never, for_good=True)
        return self._control.switch(
            self._server.base_url,
            config,
            ids,
            ranks=config.tp_size,
            graph_batch_sizes=self._graph_batch_sizes if order is None else (),
            timeout_s=self._switch_timeout_s,
            is_alive=lambda: self._server.failure_now() is None,
            trace=order if isinstance(order, TraceOrder) else None,
            probe=order if isinstance(order, ProbeOrder) else None,
        )

    def _after_switch(self, running: Running, config: EngineConfig, switched: Switched) -> LaunchObservation:
        """What is now observed: the command becomes the one that would launch this configuration by itself.

        `/server_info` goes on showing what the server was started with; the ranks themselves said what runs.
        """
        launch = running.launch
        assert config.layout is not None
        runs = {f"speculative_{name}": getattr(config.triple, name) for name in TRIPLE_NAMES}
        ids = override_ids(self._spec, config.layout)
        path = write_draft_config(self._spec, config.layout, ids) if isinstance(ids, tuple) else None
        args = server_args(
            self._spec,
            config,
            port=launch.port,
            rendezvous_port=int(launch.effective_args.get("nccl_port") or 0),
            draft_config=path,
        )
        return replace(
            launch,
            command=redact(server_command(self._spec, args)),
            files=() if path is None else ((str(path), path.read_text(encoding="utf-8")),),
            effective_args={**launch.effective_args, **runs},
            switch_s=switched.elapsed_s,
            pools=running.room.triple,
            graphs_s=switched.graphs_s,
            graphs_gb=switched.graphs_gb,
        )


def _not_obeyed(order: TraceOrder | ProbeOrder, failed: NotSwitched) -> Failure:
    what = "trace" if isinstance(order, TraceOrder) else "probe"
    kind: Kind = "machine" if failed.of_machine else "mismatch"
    return Failure(phase="launch", kind=kind, message=f"cannot {what}: {failed.reason}")


def _with_findings(launch: LaunchObservation, *findings: str) -> LaunchObservation:
    """Each of them once."""
    return replace(launch, findings=(*launch.findings, *dict.fromkeys(findings)))
