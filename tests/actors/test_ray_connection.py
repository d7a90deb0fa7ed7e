"""Connecting to Ray: what keeps its place in the process, bounded waits, and which Ray is meant."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest

from actors.cluster_address import ClusterAddress
from actors.ray_connection import connect
from search_spaces.errors import EnvironmentProblem


def test_whoever_caught_sigterm_before_still_does(ray_address: str) -> None:
    terminated: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: terminated.append(number))
    try:
        cluster = connect(ClusterAddress(address=ray_address))
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            assert terminated == [signal.SIGTERM]
        finally:
            cluster.shutdown()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_address_that_does_not_answer_is_said_within_bounds() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        before = time.monotonic()
        with pytest.raises(EnvironmentProblem, match=f"cluster.address: {address}: no Ray answers"):
            connect(ClusterAddress(address=address, connect_timeout_s=6.0))
        assert time.monotonic() - before < 12
    # nobody listens there any more
    before = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=f"{address}: no Ray listens there: Connection refused"):
        connect(ClusterAddress(address=address))
    assert time.monotonic() - before < 2
    with pytest.raises(EnvironmentProblem, match="Ray Client is not supported"):
        connect(ClusterAddress(address="ray://127.0.0.1:10001"))


def test_where_a_sweep_looks_for_ray() -> None:
    job_variables = {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}
    assert ClusterAddress().resolve({}) is None
    assert ClusterAddress().resolve(job_variables) == "auto"
    assert ClusterAddress().resolve({"RAY_ADDRESS": "1.2.3.4:6379", **job_variables}) == "1.2.3.4:6379"
    assert ClusterAddress(address="auto").resolve({"RAY_ADDRESS": "1.2.3.4:6379"}) == "auto"
