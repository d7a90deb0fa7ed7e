"""The engine that owns one real SGLang server: launches it under the guard, verifies it, and clears up after it."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.engines import devices
from actors.engines.command import redact, server_args, server_command, world_size
from actors.engines.draft_config import override_ids, write_draft_config
from actors.engines.effective import is_another_server, log_findings, resolved_args, verify
from actors.engines.environment import Environment, build_environment, is_simulating
from actors.engines.forking import ForkServer
from actors.engines.guard import descendants, mapped_shared_memory
from actors.engines.guarded_process import GuardedProcess, sweep_leftovers
from actors.engines.launch_log import classify, tail
from actors.engines.ports import PortLease, lease_ports
from actors.engines.readiness import read_log, wait_until_ready
from actors.engines.server_spec import ServerSpec
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, FlagValue
from search_spaces.dialects import Inexpressible
from search_spaces.errors import InputError

LOG = logging.getLogger(__name__)

MEMORY_SLACK_MIB = 512
"""By how much GPU memory may be higher after a server than before it."""


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
        self._running: _Running | None = None
        self._closed = False
        self._forks: ForkServer | None = None
        self._launches = 0
        self._log: Path | None = None
        ended = sweep_leftovers(spec.owner)
        if ended:
            LOG.warning("ended %d processes that an earlier owner of %s had left", ended, spec.owner)

    def apply(self, config: EngineConfig) -> LaunchObservation | Failure:
        """See `Engine.apply`. Everything differing means a new launch; a port taken meanwhile is tried elsewhere."""
        running = self._running
        if running is not None and running.config == config and running.process.alive:
            return replace(running.launch, weights_loaded=False)
        self._stop()
        if self._closed:
            return Failure(phase="launch", kind="interrupted", message="the engine is closed")
        outcome: LaunchObservation | Failure = self._launch(config)
        for _ in range(1, self._spec.port_attempts):
            if not (isinstance(outcome, Failure) and outcome.kind == "port_in_use") or self._spec.port is not None:
                break
            LOG.info("%s; trying other ports", outcome.message)
            outcome = self._launch(config)
        if self._closed:
            self.close()  # whoever interrupted this start may still be at it
        return outcome

    @property
    def base_url(self) -> str:
        if self._running is None:
            raise RuntimeError("no server runs")
        return self._running.base_url

    def failure_now(self) -> Failure | None:
        running = self._running
        if running is None or running.process.alive:
            return None
        return classify(read_log(running.log), running.process.exit_status(), "measure")

    def log_tail(self, max_bytes: int = 65536) -> str:
        return "" if self._log is None else tail(read_log(self._log, max_bytes * 2), max_bytes)

    def stop(self) -> None:
        """End the running server, if there is one; the next `apply` launches anew."""
        self._stop()

    def close(self) -> None:
        self._closed = True
        with self._lock:
            self._stop()
            if self._forks is not None:
                self._forks.close()

    def _launch(self, config: EngineConfig) -> LaunchObservation | Failure:
        """One start. After a Failure nothing of it is left."""
        spec = self._spec
        planned = self._plan(config)
        if isinstance(planned, Failure):
            return planned
        environment, draft_config, scratch = planned
        try:
            forks = self._fork_server(environment)
            if isinstance(forks, Failure):
                self._discard(scratch)
                return forks
            ports = lease_ports(spec.port)
        except InputError as problem:
            self._discard(scratch)
            return Failure(phase="launch", kind="port_in_use", message=str(problem))
        args = server_args(spec, config, port=ports.http, rendezvous_port=ports.rendezvous, draft_config=draft_config)
        command = server_command(spec, args)
        with self._lock:
            if self._closed:
                ports.release()
                self._discard(scratch)
                return Failure(phase="launch", kind="interrupted", message="the engine is closed")
            try:
                running = _Running(
                    spec=spec,
                    config=config,
                    args=args,
                    command=command,
                    environment=environment,
                    ports=ports,
                    scratch=scratch,
                    log=self._next_log(),
                    forks=forks,
                )
            except RuntimeError as problem:  # no guard: out of processes, or the fork server has just died
                ports.release()
                self._discard(scratch)
                return Failure(phase="launch", kind="crash", message=" ".join(str(problem).split()))
            self._running = running
        LOG.info("starting %s", " ".join(redact(command)))
        outcome = running.wait(lambda: self._closed)
        if isinstance(outcome, Failure):
            self._stop()
        return outcome

    def _plan(self, config: EngineConfig) -> tuple[Environment, Path | None, Path] | Failure:
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
        environment = build_environment(spec, os.environ, world_size(spec, config), scratch)
        if isinstance(environment, Failure):
            self._discard(scratch)
            return environment
        return environment, draft_config, scratch

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
        self._launches += 1
        self._log = self._spec.work_dir / f"server-{self._launches}.log"
        self._log.unlink(missing_ok=True)
        return self._log

    def _stop(self) -> None:
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                running.stop()


class _Running:
    """One launch and what it holds: process, ports, scratch folder, GPU memory."""

    def __init__(
        self,
        *,
        spec: ServerSpec,
        config: EngineConfig,
        args: dict[str, FlagValue],
        command: tuple[str, ...],
        environment: Environment,
        ports: PortLease,
        scratch: Path,
        log: Path,
        forks: ForkServer | None,
    ) -> None:
        self.config, self.log = config, log
        self._spec, self._args, self._command, self._environment = spec, args, command, environment
        self._ports, self._scratch = ports, scratch
        self._gpus = devices.list_gpus() if spec.device == "cuda" else ()
        self._shared_memory: set[str] = set()
        self._started = time.monotonic()
        self.process = GuardedProcess.start(
            command,
            environment=environment.variables,
            log=log,
            status=log.with_suffix(".exit.json"),
            owner=spec.owner,
            grace_s=spec.stop_grace_s,
            scratch=scratch,
            starter=None if forks is None else forks.start,
            spare=frozenset() if forks is None else forks.process.identities,
        )
        self.base_url = f"http://{spec.host}:{ports.http}"

    def wait(self, given_up: Callable[[], bool]) -> LaunchObservation | Failure:
        """Until the server answers and is what was asked for."""
        info = wait_until_ready(self.base_url, self.process, self.log, self._spec.ready_timeout_s, given_up)
        if isinstance(info, Failure):
            return info
        if is_another_server(info, self._ports.http, self._ports.rendezvous):
            message = f"another server answers on port {self._ports.http}"
            return Failure(phase="ready", kind="port_in_use", message=message, log_tail=tail(read_log(self.log)))
        verification = verify(info, self.config, self._args)
        if verification.mismatch is not None:
            log_tail = tail(read_log(self.log))
            return Failure(phase="verify", kind="mismatch", message=verification.mismatch, log_tail=log_tail)
        self._shared_memory = mapped_shared_memory(descendants(self.process.guard_pid))
        self.launch = self._observe(info, verification.findings)
        return self.launch

    def stop(self) -> None:
        """Returns when processes, ports, scratch files and GPU memory are given back."""
        self.process.close()
        self._ports.release()
        shutil.rmtree(self._scratch, ignore_errors=True)
        for path in self._shared_memory:
            Path(path).unlink(missing_ok=True)  # in case that the guard was killed
        if self._gpus:
            limit = devices.memory_used_mib(self._spec.device_ids, self._gpus) + MEMORY_SLACK_MIB
            used = devices.wait_for_memory(self._spec.device_ids, limit)
            if used > limit:
                ids = ", ".join(self._spec.device_ids)
                LOG.warning("GPUs %s still use %d MiB, more than the %d MiB before the server", ids, used, limit)

    def _observe(self, info: dict[str, Any], differences: tuple[str, ...]) -> LaunchObservation:
        spec = self._spec
        simulating = is_simulating(spec.environment)
        findings = list(differences) + list(log_findings(read_log(self.log)))
        if simulating:
            findings.append(f"acceptance is simulated ({simulating}): nothing here is a measurement")
        findings += [f"{name} is set where the actor runs and was not passed on" for name in self._environment.withheld]
        return LaunchObservation(
            command=redact(self._command),
            engine_version=str(info.get("version", spec.sglang_version)),
            accelerator=devices.describe(spec.device, spec.device_ids, self._gpus),
            stand_in_kernels="sgl_kernel" in spec.stand_ins,
            ready_s=time.monotonic() - self._started,
            pid=self.process.pid,
            port=self._ports.http,
            device_ids=spec.device_ids,
            effective_args=resolved_args(info),
            findings=tuple(findings),
            files=self._files(),
            environment=self._environment.needed,
        )

    def _files(self) -> tuple[tuple[str, str], ...]:
        """The draft's config for the layout, which lies in the work folder only as long as the group lives."""
        path = self._args.get("decrypted_draft_config_file")
        return () if path is None else ((str(path), Path(str(path)).read_text(encoding="utf-8")),)
