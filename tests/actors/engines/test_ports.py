from __future__ import annotations

import itertools
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.ports import NoFreePortError, is_free, lease_ports, rendezvous_of
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
        taken = f"{free.http} goes with {free.rendezvous}, which is in use" if offset else f"{free.http} is in use"
        with pytest.raises(InputError, match=rf"^engine\.port: {taken}; name another port or leave the key out$"):
            lease_ports(free.http)
    lease_ports(free.http).release()


@given(st.integers(1, 65_535))
def test_the_second_port_is_a_port(port: int) -> None:
    assert 1 <= rendezvous_of(port) <= 65_535
    assert abs(rendezvous_of(port) - port) == 61


def test_a_port_near_the_top_is_leased() -> None:
    lease = lease_ports(65_500)
    assert (lease.http, lease.rendezvous) == (65_500, 65_439)
    lease.release()


def test_without_any_free_port_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.engines.ports.is_free", lambda port: False)
    with pytest.raises(NoFreePortError, match="no free port between 20000 and 32700"):
        lease_ports()


def test_a_closed_connection_does_not_hold_a_port() -> None:
    server = listener()
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        accepted, _ = server.accept()
    accepted.close()
    server.close()
    assert is_free(port)
