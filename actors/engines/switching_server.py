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
    why_not_switchable,
    with_room,
)
from actors.engines.plugin_folder import PLUGIN_NAME, write_plugin_folder
from actors.engines.rooms import Rooms
from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from actors.sglang_plugin.orders import ProbeOrder, TraceOrder
from results.failures import Failure, Kind
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, Taps, Triple
from search_spaces.dialects import Inexpressible, dialect_of

LOG = logging.getLogger(__name__)


class SwitchingServer:
    """An `Engine` around `SglangServer`. Launches with room for `pools`; switches where layout or triple alone differ.

    Where SGLang would choose other arguments for a server with room than for the one that is asked, it is launched
    with less room, and its findings say why; `triples` are those of the sweep (see `Rooms`). A switch that fails
    becomes a launch whose findings say why; after `MAX_FAILED_SWITCHES` in a row nothing is switched any more (an
    SGLang without the machinery), nor after one that no rank answered and none before (a plugin that does not load),
    nor where an argument forbids it. One that failed for a full disk does not count.
    """

    MAX_FAILED_SWITCHES = 2

    def __init__(
        self,
        spec: ServerSpec,
        *,
        pools: Triple,
        triples: tuple[Triple, ...] = (),
        graph_batch_sizes: tuple[int, ...] | None = None,
        switch_timeout_s: float = 300.0,
    ) -> None:
        self._spec, self._pools = spec, pools
        self._graph_batch_sizes, self._switch_timeout_s = graph_batch_sizes, switch_timeout_s
        self._control = LiveControl(spec.work_dir / "control")
        self._server = SglangServer(_with_plugin(spec, self._control))
        self._rooms = Rooms(spec, pools, triples)
        self._room: EngineConfig | None = None  # as what the server was launched
        self._config: EngineConfig | None = None
        self._launch: LaunchObservation | None = None
        self._failed_switches = 0
        self._ordered = False  # a trace or a probe is on

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        applied = self._applied(config)
        unchecked = self._rooms.unchecked(self._room, config) if self._room is not None else None
        if isinstance(applied, Failure) or unchecked is None:
            return applied
        return replace(applied, findings=(*applied.findings, unchecked))

    def _applied(self, config: EngineConfig) -> LaunchObservation | Failure:
        running = self._launch if self._server.failure_now() is None else None
        if running is not None and config == self._config and not self._ordered:
            return replace(running, weights_loaded=False)
        if not self._reaches(config, exact=True):
            return self._relaunch(config)
        switched = self._switch(config)
        if isinstance(switched, NotSwitched):
            return self._relaunch(config, switched)
        return replace(switched, weights_loaded=False)

    def trace(self, config: EngineConfig, order: TraceOrder) -> LaunchObservation | Failure:
        """Bring the server into `config` and have rank 0 log every draft's candidate pool, from now to the next order.

        Until the next `apply` every draft misses: nothing measured meanwhile is a measurement, so one server with all
        the room will do for every triple. Without CUDA graphs, which would pass by the hook. The caller flushes the
        server to have the file complete on the disk.
        """
        return self._ordered_to(config, "trace", trace=order)

    def probe(self, config: EngineConfig, order: ProbeOrder) -> LaunchObservation | Failure:
        """Bring the server into `config` and have every rank record what its draft is fed, from now to the next order.

        Outputs and acceptance stay what they are, times do not. The caller sends prompts one at a time and flushes the
        server to have the files complete on the disk.
        """
        return self._ordered_to(config, "probe", probe=order)

    def _ordered_to(
        self, config: EngineConfig, what: str, *, trace: TraceOrder | None = None, probe: ProbeOrder | None = None
    ) -> LaunchObservation | Failure:
        launches = not self._reaches(config, exact=False)
        if launches:
            launched = self._relaunch(config, exact=False)
            if isinstance(launched, Failure):
                return launched
        switched = self._switch(config, trace=trace, probe=probe)
        if isinstance(switched, NotSwitched):
            self._forget()
            kind: Kind = "machine" if switched.of_machine else "mismatch"
            return Failure(phase="launch", kind=kind, message=f"cannot {what}: {switched.reason}")
        return replace(switched, weights_loaded=launches)

    @property
    def base_url(self) -> str:
        return self._server.base_url

    def failure_now(self) -> Failure | None:
        return self._server.failure_now()

    def log_tail(self, max_bytes: int = 65536) -> str:
        return self._server.log_tail(max_bytes)

    def close(self) -> None:
        self._forget()
        self._server.close()
        self._rooms.close()

    def _forget(self) -> None:
        """Whatever runs now is no server to go on with."""
        self._room = self._config = self._launch = None
        self._ordered = False

    def _reaches(self, wanted: EngineConfig, *, exact: bool) -> bool:
        """Whether the server that runs can be switched to `wanted`; with `exact`, so that nothing but the triple tells
        it from one that SGLang would launch as `wanted`."""
        room = self._room
        if room is None or self._server.failure_now() is not None or not self._trusts_switches(wanted):
            return False
        if why_not_switchable(room, wanted) is not None:
            return False
        return not exact or self._rooms.difference(room, wanted) is None

    def _trusts_switches(self, config: EngineConfig) -> bool:
        return self._failed_switches < self.MAX_FAILED_SWITCHES and self._forbidden(config) is None

    def _relaunch(
        self, config: EngineConfig, reason: NotSwitched | None = None, *, exact: bool = True
    ) -> LaunchObservation | Failure:
        """Launch `config`, by way of a larger one where that leaves room to switch later; `exact` as in `_reaches`.

        `reason` is the failed switch that makes it necessary.
        """
        self._forget()
        room, less = config, None
        # a disk that took no order takes none now
        if self._trusts_switches(config) and not (reason is not None and reason.of_machine):
            room, less = self._rooms.to_launch(config) if exact else (with_room(config, self._pools), None)
        self._control.forget()
        # anew: else a server that was launched like this would be kept, whatever it runs by now
        launched = self._server.apply(room, anew=True)
        if isinstance(launched, Failure):
            return launched
        self._room, self._config, self._launch = room, room, launched
        if room != config:
            switched = self._switch(config)
            if isinstance(switched, NotSwitched):
                return self._relaunch(config, switched, exact=exact)
            launched = switched
        why = self._forbidden(config) if reason is None else reason.reason
        # of this trial only: those that are switched to later were not launched
        told = [f"launched anew: {why}"] if why is not None else []
        told += [f"launched with less room: {less}"] if less is not None else []
        return replace(launched, findings=(*launched.findings, *told))

    def _switch(
        self, config: EngineConfig, *, trace: TraceOrder | None = None, probe: ProbeOrder | None = None
    ) -> LaunchObservation | NotSwitched:
        assert self._launch is not None
        assert config.layout is not None
        assert config.triple is not None
        ids = self._ids(config.layout)
        if isinstance(ids, Inexpressible):
            return self._note(NotSwitched(reason=ids.reason))
        never = why_never_switchable(self._launch.effective_args)  # as the server has resolved them
        if never is not None:
            return self._note(NotSwitched(reason=never, for_good=True))
        switched = self._control.switch(
            self._server.base_url,
            config,
            ids,
            ranks=config.tp_size,
            graph_batch_sizes=self._graph_batch_sizes if trace is None and probe is None else (),
            timeout_s=self._switch_timeout_s,
            is_alive=lambda: self._server.failure_now() is None,
            trace=trace,
            probe=probe,
        )
        if isinstance(switched, NotSwitched):
            return self._note(switched)
        try:
            launch = self._after_switch(config, switched)
        except OSError as problem:
            return self._note(NotSwitched(reason=f"the draft's config cannot be written: {problem}", of_machine=True))
        self._failed_switches, self._ordered = 0, trace is not None or probe is not None
        self._config, self._launch = config, launch
        if not switched.not_freed:
            return self._launch
        left = f"the switch has not freed what ran before: {', '.join(switched.not_freed)}"
        return replace(self._launch, findings=(*self._launch.findings, left))

    def _forbidden(self, config: EngineConfig) -> str | None:
        """Why no server of this configuration is ever switched; None without such a reason."""
        if config.triple is None:
            return None
        return why_never_switchable({**self._spec.args, **dict(config.flags)})

    def _note(self, failed: NotSwitched) -> NotSwitched:
        if failed.for_good:
            self._failed_switches = self.MAX_FAILED_SWITCHES
        elif not failed.of_machine:
            self._failed_switches += 1
        LOG.warning("switch failed, launching instead: %s", failed.reason)
        return failed

    def _after_switch(self, config: EngineConfig, switched: Switched) -> LaunchObservation:
        """What is now observed: the command becomes the one that would launch this configuration by itself.

        `/server_info` goes on showing what the server was started with; the ranks themselves said what runs.
        """
        launch, room = self._launch, self._room
        assert launch is not None
        assert room is not None
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
            pools=room.triple,
            graphs_s=switched.graphs_s,
            graphs_gb=switched.graphs_gb,
        )

    def _ids(self, layout: Taps) -> tuple[int, ...] | Inexpressible:
        dialect = dialect_of(self._spec.target.architecture, self._spec.sglang_version)
        return dialect.ids_for(layout, self._spec.target.num_layers)


def _with_plugin(spec: ServerSpec, control: LiveControl) -> ServerSpec:
    folder = write_plugin_folder(spec.work_dir / "plugin")
    path = ":".join(filter(None, [spec.environment.get("PYTHONPATH"), str(folder)]))
    environment = {**spec.environment, **control.environment, "PYTHONPATH": path}
    # the user's own list of plugins would keep ours out (srt/plugins/__init__.py, load_plugins_by_group)
    if listed := spec.environment.get("SGLANG_PLUGINS"):
        environment["SGLANG_PLUGINS"] = f"{listed},{PLUGIN_NAME}"
    return replace(spec, environment=environment)
