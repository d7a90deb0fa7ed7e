"""Connecting to a Ray cluster, or starting one, within a bounded time; an address that is no Ray is an error."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from actors.cluster_address import ClusterAddress
from actors.ray_cluster import RayCluster
from actors.ray_errors import one_line
from search_spaces.errors import EnvironmentProblem

OBJECT_STORE_BYTES = 100 * 2**20
"""Jobs and outcomes are small; Ray's own default reserves a third of the memory."""


def connect(where: ClusterAddress) -> RayCluster:
    """Connect to a cluster or start one.

    EnvironmentProblem when the address does not answer within `connect_timeout_s`. A Ray of our own listens on the
    machine's address, so it gets a random token unless the user has set RAY_AUTH_MODE; the token is never written.
    """
    address = where.resolve(os.environ)
    # Ray would else copy a whole `uv run` environment into every worker
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # Ray runs workers at niceness 15, which their servers inherit: a CPU server would be measured below its speed
    os.environ.setdefault("RAY_worker_niceness", "0")
    if address is None:
        _choose_authentication()
    else:
        check_listens(where)
        _check_alive(address, where.connect_timeout_s)
    import ray

    options: dict[str, Any] = {"logging_level": "WARNING", "log_to_driver": False, "configure_logging": False}
    if address is None:
        options |= {
            "num_cpus": where.cpus,
            "num_gpus": where.gpus,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    try:
        with _keeping_handler(signal.SIGTERM):
            ray.init(address=address or "local", **options)
    except SystemExit as error:
        # ray.init ends the process of its own accord when the address answers but is no Ray
        raise EnvironmentProblem(f"cluster.address: {address or 'local'}: Ray gave up connecting ({error})") from None
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise EnvironmentProblem(f"cluster.address: {address or 'local'}: {one_line(error)}") from None
    return RayCluster()


@contextlib.contextmanager
def _keeping_handler(number: signal.Signals) -> Iterator[None]:
    """Put the caller's handler back, if there is one: `ray.init` sets its own for SIGTERM, which ends the process
    before a sweep can give back what it began."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(number, before)


def _choose_authentication() -> None:
    """Read by Ray's core when it is imported; later changes have no effect."""
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def check_listens(where: ClusterAddress) -> None:
    """EnvironmentProblem when nobody accepts a connection at the address. Ray itself would take half a minute to tell.

    Nothing is checked where there is no HOST:PORT to connect to.
    """
    address = where.resolve(os.environ)
    host, colon, port = (address or "").rpartition(":")
    if "/" in host or not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=where.listen_timeout_s).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or f"no answer within {where.listen_timeout_s:g} s"
        raise EnvironmentProblem(f"cluster.address: {address}: no Ray listens there: {reason}") from None


def _check_alive(address: str, timeout_s: float) -> None:
    """Ask in a process of its own: `ray.init` on a dead address takes minutes and then ends the process it is in."""
    if address.startswith("ray://"):
        raise EnvironmentProblem(
            f"cluster.address: {address}: Ray Client is not supported; use `specsweep submit`, or HOST:PORT of the head"
        )
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    command += [] if address == "auto" else ["--address", address]
    # without an address of its own the check would take RAY_ADDRESS, which may itself say "auto"
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS" or v != "auto"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(f"cluster.address: {address}: no Ray answers within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"health check exit code {done.returncode}"
        raise EnvironmentProblem(f"cluster.address: {address}: no Ray answers: {reason}")
