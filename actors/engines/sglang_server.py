"""The engine that owns one real SGLang server: launches it under the guard, verifies it, and clears up after it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

from actors.engines.command import redact, server_args, server_command, world_size
from actors.engines.draft_config import override_ids, write_draft_config
from actors.engines.environment import Environment, build_environment
from actors.engines.forking import ForkServer
from actors.engines.guarded_process import sweep_leftovers
from actors.engines.launch_log import classify, tail
from actors.engines.launched_server import LaunchedServer
from actors.engines.ports import NoFreePortError, lease_ports
from actors.engines.readiness import read_log
from actors.engines.server_spec import ServerSpec
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig
from search_spaces.dialects import Inexpressible
from search_spaces.errors import InputError

LOG = logging.getLogger(__name__)


class SglangServer:
    """An `Engine`. At most one server runs; everything it leaves on this machine is in `spec.work_dir`.

    With the start method `fork`, an idle interpreter from which servers are forked lives from the first `apply` to
    `close`. `close` may be called from another thread while `apply` works, which then returns an `interrupted` failure.
    """

    def __init__(self, spec: ServerSpec) -> None:
        """Makes the work folder and ends what a killed predecessor of the same sweep and slot has left running."""
        self._spec = spec
        spec.work_dir.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()  # over _running and _stop
        self._running: LaunchedServer | None = None
        self._closed = False
        self._forks: ForkServer | None = None
        self.starts = 0  # servers that were started so far
        self._log: Path | None = None
        self._base_url: str | None = None
        ended = sweep_leftovers(spec.owner)
        if ended:
            LOG.warning("ended %d processes that an earlier owner of %s had left", ended, spec.owner)

    def apply(self, config: EngineConfig, *, anew: bool = False) -> LaunchObservation | Failure:
        """See `Engine.apply`. Everything differing means a new launch; a port taken meanwhile is tried elsewhere.

        With `anew` nothing that runs is kept.
        """
        running, began_s, before = self._running, time.monotonic(), self.starts
        if not anew and running is not None and running.config == config and running.process.alive:
            return running.launch.counted(0)
        self._stop()
        if self._closed:
            return Failure(phase="launch", kind="interrupted", message="the engine is closed")
        outcome: LaunchObservation | Failure = self._launch(config, began_s)
        for _ in range(1, self._spec.port_attempts):
            if not (isinstance(outcome, Failure) and outcome.kind == "port_in_use") or self._spec.port is not None:
                break
            LOG.info("%s; trying other ports", outcome.message)
            outcome = self._launch(config, began_s)
        if self._closed:
            self.close()  # whoever interrupted this start may still be at it
        return outcome.counted(self.starts - before)

    @property
    def base_url(self) -> str:
        if self._base_url is None:
            raise RuntimeError("no server was started")
        return self._base_url

    def failure_now(self) -> Failure | None:
        running = self._running
        if self._closed:
            return Failure(phase="measure", kind="interrupted", message="the engine is closed")
        if running is None or running.process.alive:
            return None
        return classify(read_log(running.log), running.process.exit_status(), "measure")

    def log_tail(self, max_bytes: int = 65536) -> str:
        return "" if self._log is None else tail(read_log(self._log, max_bytes * 2), max_bytes)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            self._stop()
            if self._forks is not None:
                self._forks.close()

    def _launch(self, config: EngineConfig, began_s: float) -> LaunchObservation | Failure:
        """One start. After a Failure nothing of it is left."""
        with contextlib.ExitStack() as undo:
            try:
                running = self._start(config, began_s, undo)
            except (
                OSError,
                RuntimeError,
            ) as problem:  # no room, no descriptors, no guard: nothing that config can help
                return Failure(phase="launch", kind="machine", message=" ".join(str(problem).split()))
            if isinstance(running, Failure):
                return running
            undo.pop_all()
        outcome = running.wait(lambda: self._closed)
        if isinstance(outcome, Failure):
            self._stop()
        return outcome

    def _start(self, config: EngineConfig, began_s: float, undo: contextlib.ExitStack) -> LaunchedServer | Failure:
        """`undo` gets what is to be given back if it comes to nothing."""
        spec = self._spec
        planned = self._plan(config, undo)
        if isinstance(planned, Failure):
            return planned
        environment, draft_config, scratch = planned
        forks = self._fork_server(environment)
        if isinstance(forks, Failure):
            return forks
        try:
            ports = lease_ports(spec.port)
        except (InputError, NoFreePortError) as problem:
            return Failure(phase="launch", kind="port_in_use", message=str(problem))
        undo.callback(ports.release)
        args = server_args(spec, config, port=ports.http, rendezvous_port=ports.rendezvous, draft_config=draft_config)
        command = server_command(spec, args)
        with self._lock:
            if self._closed:
                return Failure(phase="launch", kind="interrupted", message="the engine is closed")
            running = LaunchedServer(
                spec=spec,
                config=config,
                args=args,
                command=command,
                environment=environment,
                ports=ports,
                scratch=scratch,
                log=self._next_log(),
                forks=forks,
                began_s=began_s,
            )
            self._running, self._base_url = running, running.base_url
        LOG.info("starting %s", " ".join(redact(command)))
        return running

    def _plan(
        self, config: EngineConfig, undo: contextlib.ExitStack
    ) -> tuple[Environment, Path | None, Path] | Failure:
        spec = self._spec
        draft_config = None
        if config.layout is not None:
            try:
                ids = override_ids(spec, config.layout)
            except InputError as problem:
                return Failure(phase="launch", kind="bad_config", message=str(problem))
            if isinstance(ids, Inexpressible):
                return Failure(phase="launch", kind="bad_config", message=ids.reason)
            if ids is not None:
                draft_config = write_draft_config(spec, config.layout, ids)
        scratch = self._new_scratch()
        undo.callback(self._discard, scratch)
        environment = build_environment(spec, os.environ, world_size(spec, config), scratch)
        return environment if isinstance(environment, Failure) else (environment, draft_config, scratch)

    def _new_scratch(self) -> Path:
        """A folder for one server, inside the fork server's if there is one. Its path is short, for sockets."""
        if self._spec.start_method != "fork":
            return Path(tempfile.mkdtemp(prefix="specsweep-"))
        with self._lock:
            if self._forks is not None and not self._forks.process.alive:
                self._forks.close()
                self._forks = None
            root = tempfile.mkdtemp(prefix="specsweep-") if self._forks is None else self._forks.scratch
        return Path(tempfile.mkdtemp(dir=root))

    def _discard(self, scratch: Path) -> None:
        """Remove the folder of a server that was not started, and the fork server's if that was not started either."""
        alone = self._spec.start_method == "fork" and self._forks is None
        shutil.rmtree(scratch.parent if alone else scratch, ignore_errors=True)

    def _fork_server(self, environment: Environment) -> ForkServer | Failure | None:
        """The engine's fork server, ready; a new one when it has died; None when servers are executed."""
        spec = self._spec
        if spec.start_method != "fork":
            return None
        with self._lock:
            if self._closed:
                return Failure(phase="launch", kind="interrupted", message="the engine is closed")
            if self._forks is None:
                log = spec.work_dir / "fork-server.log"
                self._forks = ForkServer(
                    spec.python, environment.variables, log, spec.owner, Path(environment.variables["TMPDIR"]).parent
                )
            forks = self._forks
        if forks.wait_until_ready(spec.ready_timeout_s, lambda: self._closed):
            return forks
        if self._closed:
            return Failure(phase="launch", kind="interrupted", message="the engine is closed")
        self._log = forks.log
        return classify(read_log(forks.log), forks.process.exit_status(), "launch", seconds=spec.ready_timeout_s)

    def _next_log(self) -> Path:
        self.starts += 1
        self._log = self._spec.work_dir / f"server-{self.starts}.log"
        self._log.unlink(missing_ok=True)
        return self._log

    def _stop(self) -> None:
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                running.stop()
