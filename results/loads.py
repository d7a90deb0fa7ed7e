"""A cell's load in words, and as a label."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.request_table import CellKey


def load_words(load: CellKey) -> str:
    """`concurrency 8` for a closed loop, `2.5 requests/s` for an open one."""
    return f"concurrency {load[0]}" if load[1] is None else f"{load[1]:g} requests/s"


def load_label(load: CellKey) -> str:
    """`8` for a closed loop of eight, `2.5/s` for an open loop."""
    return str(load[0]) if load[1] is None else f"{load[1]:g}/s"
