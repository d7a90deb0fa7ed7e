"""One launched server: what it holds, whether it is what was asked for, and giving everything back."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.engines import devices
from actors.engines.command import redact
from actors.engines.effective import is_another_server, log_findings, resolved_args, verify
from actors.engines.endpoint_url import root_url
from actors.engines.environment import Environment, is_simulating
from actors.engines.forking import ForkServer
from actors.engines.guard import descendants, mapped_shared_memory
from actors.engines.guarded_process import GuardedProcess
from actors.engines.launch_log import tail
from actors.engines.ports import PortLease
from actors.engines.readiness import read_log, wait_until_ready
from actors.engines.server_http import freeze_garbage
from actors.engines.server_spec import ServerSpec
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, FlagValue

LOG = logging.getLogger(__name__)

MEMORY_SLACK_MIB = 512
"""By how much GPU memory may be higher after a server than before it."""


class LaunchedServer:
    """What one launch holds: process, ports, scratch folder, GPU memory. Made with the process started.

    `began_s` (monotonic) is when the launch began: another server may have been ended, an interpreter started since.
    """

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
        began_s: float,
    ) -> None:
        self.config, self.log = config, log
        self._spec, self._args, self._command, self._environment = spec, args, command, environment
        self._ports, self._scratch = ports, scratch
        self._gpus = devices.list_gpus() if spec.device == "cuda" else ()
        self._shared_memory: set[str] = set()
        self._began_s = began_s
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
        self.base_url = root_url(spec.host, ports.http)

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
        freeze_garbage(self.base_url)
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
            ready_s=time.monotonic() - self._began_s,
            pid=self.process.pid,
            port=self._ports.http,
            device_ids=spec.device_ids,
            effective_args=resolved_args(info),
            findings=tuple(findings),
            files=self._files(),
            environment=self._environment.needed,
            simulated=simulating,
        )

    def _files(self) -> tuple[tuple[str, str], ...]:
        """The draft's config for the layout, which lies in the work folder only as long as the group lives."""
        path = self._args.get("decrypted_draft_config_file")
        return () if path is None else ((str(path), Path(str(path)).read_text(encoding="utf-8")),)
