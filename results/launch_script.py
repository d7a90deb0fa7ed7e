"""A launch command as text that a user can read, copy and run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command_lines(command: Sequence[str]) -> tuple[str, ...]:
    """The command quoted for a POSIX shell, one flag with its values a line."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return tuple(" ".join(line) for line in lines if line)


def command_text(command: Sequence[str]) -> str:
    """The command over several lines, continued with backslashes."""
    return " \\\n  ".join(command_lines(command))


def launch_script(command: Sequence[str], *, comment: str) -> str:
    """A shell script that replaces itself by the server. `comment` is one line."""
    return f"#!/bin/sh\n# {' '.join(comment.split())}\nexec {command_text(command)}\n"
