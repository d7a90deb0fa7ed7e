"""Ray's errors in one line: they come as paragraphs, in colours, and wrap what a task raised."""

from __future__ import annotations

import re
from typing import Any

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def one_line(error: BaseException | str) -> str:
    """The message without colours and line breaks, at most 400 characters; the error's class when there is none."""
    words = _COLOUR.sub("", str(error)).split()
    return (" ".join(words) or type(error).__name__)[:400]


def cause_line(error: Any) -> str:
    """Class and message of what a task raised; of Ray's error itself when it wraps nothing."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {one_line(cause)}"
