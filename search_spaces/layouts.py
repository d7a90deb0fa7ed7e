"""Layouts as labels: `default`, `shipped` or taps such as `0,3,7`."""

from __future__ import annotations

from typing import Final, Literal

from search_spaces.config import Taps
from search_spaces.errors import InputError

DEFAULT: Final = "default"
SHIPPED: Final = "shipped"


def parse_layout_label(text: str) -> Literal["default", "shipped"] | Taps:
    """The meaning of a label: `default` (SGLang's own choice), `shipped` (as the draft's config says) or taps.

    Taps keep the order in which they are written; whether a target class can feed them so is not judged here.
    InputError when the text is none of these.
    """
    if text == DEFAULT:
        return DEFAULT
    if text == SHIPPED:
        return SHIPPED
    parts = [part.strip() for part in text.strip().strip("[]").split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(
            f"layout: {text!r} is neither {DEFAULT}, {SHIPPED} nor taps such as 0,3,7 (0 is the embedding)"
        )
    return tuple(int(part) for part in parts)


def one_apart(first: Taps, second: Taps) -> bool:
    """Whether every tap of one layout lies one block beside the other's, all in the same direction."""
    steps = {b - a for a, b in zip(sorted(first), sorted(second), strict=False)}
    return len(first) == len(second) and steps in ({1}, {-1})
