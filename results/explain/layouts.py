"""Relations between two layouts."""

from __future__ import annotations

from search_spaces.config import Taps


def one_apart(first: Taps, second: Taps) -> bool:
    """Whether every tap of one layout lies one block beside the other's, all in the same direction."""
    steps = {b - a for a, b in zip(sorted(first), sorted(second), strict=False)}
    return len(first) == len(second) and steps in ({1}, {-1})


def show(taps: Taps | None) -> str:
    """`[0, 3, 31]`, with the embedding named."""
    if taps is None:
        return "unknown taps"
    return "[" + ", ".join("embedding" if tap == 0 else str(tap) for tap in taps) + "]"
