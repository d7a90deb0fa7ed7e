"""A cell's load in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.request_table import CellKey


def load_words(load: CellKey) -> str:
    """`concurrency 8` for a closed loop, `2.5 requests/s` for an open one."""
    return f"concurrency {load[0]}" if load[1] is None else f"{load[1]:g} requests/s"
