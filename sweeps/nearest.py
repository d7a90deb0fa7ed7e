"""The "did you mean" part of an error message."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LEGAL_SHOWN = 20


def nearest(word: str, legal: Iterable[str]) -> str:
    """`; did you mean X? (legal: X, Y)`, without the first part when nothing is close, empty when nothing is legal."""
    # difflib costs a few milliseconds to import and is needed on errors only
    from difflib import get_close_matches

    words = list(legal)
    if not words:
        return ""
    close = get_close_matches(word, words, n=1, cutoff=0.7)
    shown = ", ".join(words[:MAX_LEGAL_SHOWN]) + (", ..." if len(words) > MAX_LEGAL_SHOWN else "")
    return (f"; did you mean {close[0]}?" if close else "") + f" (legal: {shown})"
