from __future__ import annotations

import itertools
import socket
import subprocess
import sys

import pytest

from actors.engines.ports import is_free, lease_ports
from search_spaces.errors import InputError


def listener(port: int = 0, address: str = "127.0.0.1") -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    made.listen()
    return made


def test_leases_are_a_hundred_apart_and_below_the_ephemeral_range() -> None:
    leases = [lease_ports() for _ in range(20)]
    ports = sorted(lease.http for lease in leases)
    try:
        assert min(b - a for a, b in itertools.pairwise(ports)) >= 100
        assert max(lease.rendezvous for lease in leases) < 32768
        assert all(lease.rendezvous != lease.http for lease in leases)
    finally:
        for lease in leases:
            lease.release()


def test_a_port_is_leased_once_among_processes_until_its_holder_ends() -> None:
    lease = lease_ports()
    try_it = f"from actors.engines.ports import lease_ports; lease_ports({lease.http})"
    words = [sys.executable, "-c", try_it]
    assert b"is in use" in subprocess.run(words, capture_output=True, check=False).stderr
    lease.release()
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    lease_ports(lease.http).release()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("offset", [0, 61])
def test_a_port_somebody_listens_on_is_refused_when_asked_for(address: str, offset: int) -> None:
    free = lease_ports()
    free.release()
    with listener(free.http + offset, address):
        assert not is_free(free.http + offset)
        with pytest.raises(InputError, match=rf"engine\.args\.port: {free.http} is in use"):
            lease_ports(free.http)
    lease_ports(free.http).release()


def test_a_closed_connection_does_not_hold_a_port() -> None:
    server = listener()
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        accepted, _ = server.accept()
    accepted.close()
    server.close()
    assert is_free(port)
