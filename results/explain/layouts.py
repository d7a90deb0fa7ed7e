"""Layouts in words."""

from __future__ import annotations

from search_spaces.config import Taps


def show(taps: Taps | None) -> str:
    """`[0, 3, 31]`, with the embedding named."""
    if taps is None:
        return "unknown taps"
    return "[" + ", ".join("embedding" if tap == 0 else str(tap) for tap in taps) + "]"
