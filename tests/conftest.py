"""Fixtures that every test may ask for."""

from __future__ import annotations

import pytest
from tiny_models import TinyPair, make_tiny_pair


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """A random Llama target (8 blocks, hidden size 64) and an EAGLE-3 draft of three taps that declares no ids."""
    return make_tiny_pair(tmp_path_factory.mktemp("tiny_pair"))
