"""Fixtures that every test may ask for."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from ray_head import ray_head
from tiny_models import TinyPair, make_tiny_pair

# a script's background ignores Ctrl-C; drivers that are started here would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """A random Llama target (8 blocks, hidden size 64) and an EAGLE-3 draft of three taps that declares no ids."""
    return make_tiny_pair(tmp_path_factory.mktemp("tiny_pair"))


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """The address of a Ray that all tests share; its eight GPUs exist on paper only."""
    with ray_head() as address:
        yield address
