"""A launch command as text that a user can read, copy and run.

The record keeps the exact command. What is shown and written as `launch.sh` leaves out what only this study needed (the
ports it had leased, its own warm-up), and points to copies of the files that the command reads.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePath

from results.observations import LaunchObservation
from search_spaces.config import EngineConfig

_LEFT_OUT = {"--port": 1, "--nccl-port": 1, "--skip-server-warmup": 0}
"""Flags of the study's own, with the number of their values."""


def user_command(
    launch: LaunchObservation, effective: EngineConfig, file_at: Callable[[str], str] | None = None
) -> tuple[str, ...]:
    """The words with which a user starts a server of this configuration.

    `file_at` gives the place of a copied file by its name in the record (`launch_file_name`); by default the original
    place stays. A server that was switched, not launched, into its configuration gets the configuration's triple.
    """
    copies = {path: file_at(launch_file_name(path)) for path, _ in launch.files} if file_at is not None else {}
    triple = effective.triple
    numbers = {} if triple is None or launch.switch_s is None else {
        "--speculative-num-steps": str(triple.num_steps),
        "--speculative-eagle-topk": str(triple.eagle_topk),
        "--speculative-num-draft-tokens": str(triple.num_draft_tokens),
    }  # fmt: skip
    words: list[str] = []
    skip = 0
    for word in launch.command:
        if skip:
            skip -= 1
        elif word in _LEFT_OUT:
            skip = _LEFT_OUT[word]
        elif words and words[-1] in numbers:
            words.append(numbers[words[-1]])
        else:
            words.append(copies.get(word, word))
    return tuple(words)


def launch_file_name(path: str) -> str:
    """The name in a record's folder of a file that the launch command reads."""
    return PurePath(path).name


def command_lines(words: Sequence[str], quote: Callable[[str], str] = shlex.quote) -> tuple[str, ...]:
    """The command quoted for a POSIX shell, one flag with its values a line."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(quote(word))
    return tuple(" ".join(line) for line in lines if line)


def command_text(words: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> str:
    """The command over several lines, continued with backslashes, its environment in front."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in environment]
    return " \\\n  ".join((*assignments, *command_lines(words)))


_HERE = "\0here/"


def launch_script(launch: LaunchObservation, effective: EngineConfig, *, comment: str) -> str:
    """A shell script for the record's folder that becomes the server; files are read from beside it."""
    words = user_command(launch, effective, lambda name: _HERE + name)

    def quote(word: str) -> str:
        return f'"$here"/{shlex.quote(word.removeprefix(_HERE))}' if word.startswith(_HERE) else shlex.quote(word)

    lines = ["#!/bin/sh", f"# {' '.join(comment.split())}"]
    if launch.files:
        lines.append('here=$(cd "$(dirname "$0")" && pwd)')
    lines += [f"export {name}={shlex.quote(value)}" for name, value in launch.environment]
    return "\n".join((*lines, "exec " + " \\\n  ".join(command_lines(words, quote)), ""))
