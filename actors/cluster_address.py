"""Which Ray a sweep runs on, as it is told without asking one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterAddress:
    """Which Ray: an address, `auto` (the one of this machine or job), or None for a Ray of our own.

    `cpus` and `gpus` are the logical resources of a Ray of our own; None lets Ray look.
    """

    address: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    connect_timeout_s: float = 30.0
    listen_timeout_s: float = 5.0

    def resolve(self, environment: Mapping[str, str]) -> str | None:
        """The address to connect to, None for a Ray of our own. Inside a Ray job that job's cluster is meant."""
        if self.address:
            return self.address
        if environment.get("RAY_ADDRESS"):
            return environment["RAY_ADDRESS"]
        return "auto" if environment.get("RAY_JOB_CONFIG_JSON_ENV_VAR") else None
