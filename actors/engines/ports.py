"""Ports for one server: HTTP and the process group's rendezvous, leased so that servers on one node never meet.

SGLang derives further ports from its HTTP port (up to +239 with DP attention: srt/server_args.py, ZMQ_TCP_PORT_DELTA),
so leases start at multiples of 100. Among processes of this package a lease is exact: it is a name in Linux's abstract
socket namespace, which, like ports, belongs to the network namespace and vanishes with its holder. Against strangers
only a bind just before the launch helps; what slips through shows as a `port_in_use` failure and is tried elsewhere.
"""

from __future__ import annotations

import random
import socket

from search_spaces.errors import InputError

FIRST, LAST, STEP = 20_000, 32_700, 100
"""Below Linux's ephemeral range (32768 and up), where any client's outgoing connection may sit."""

RENDEZVOUS_OFFSET = 61
"""Of the rendezvous port (`--nccl-port`) from the HTTP port; not 33 to 39, where another lease's derived ports are."""

LAST_PORT = 65_535


class NoFreePortError(RuntimeError):
    """Every port that a server might get is taken."""


class PortLease:
    """Ports held for one server until `release`, or until this process ends."""

    def __init__(self, http: int, rendezvous: int, lock: socket.socket) -> None:
        self.http, self.rendezvous = http, rendezvous
        self._lock = lock

    def release(self) -> None:
        """Idempotent."""
        self._lock.close()


def lease_ports(wanted: int | None = None) -> PortLease:
    """Ports that nobody listens on now; NoFreePortError without any.

    `wanted` is a port the user insists on: InputError when it, or the second one that goes with it, is taken.
    """
    if wanted is not None:
        lease = _try_lease(wanted)
        if isinstance(lease, PortLease):
            return lease
        taken = f"{wanted} is in use" if lease == wanted else f"{wanted} goes with {lease}, which is in use"
        raise InputError(f"engine.port: {taken}; name another port or leave the key out")
    candidates = list(range(FIRST, LAST, STEP))
    random.shuffle(candidates)
    for port in candidates:
        lease = _try_lease(port)
        if isinstance(lease, PortLease):
            return lease
    raise NoFreePortError(f"no free port between {FIRST} and {LAST} on this machine")


def rendezvous_of(port: int) -> int:
    """The second port of a server on this one: above it, or below where there are no more."""
    above = port + RENDEZVOUS_OFFSET
    return above if above <= LAST_PORT else port - RENDEZVOUS_OFFSET


def is_free(port: int) -> bool:
    """True when nobody listens on this port, on any address. Connections that are closing do not count."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # a kernel without this family
            continue
        with probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as problem:
                if family == socket.AF_INET6 and problem.errno != 98:  # EADDRINUSE; else IPv6 is switched off
                    continue
                return False
    return True


def _try_lease(port: int) -> PortLease | int:
    """A lease, or the port that is taken."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0specsweep-port-{port}")
    except OSError:
        lock.close()
        return port
    rendezvous = rendezvous_of(port)
    for needed in (port, rendezvous):
        if not is_free(needed):
            lock.close()
            return needed
    return PortLease(port, rendezvous, lock)
