"""Paths as users type them: `~` opened, and text that no file can be called is a file that is not there."""

from __future__ import annotations

from pathlib import Path

from search_spaces.errors import InputError


def expanded(text: str | Path) -> Path:
    """With `~` and `~user` opened. InputError when there is no such home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{text}: no home folder is known for {Path(text).parts[0]}") from None


def is_there(path: Path) -> bool:
    """Whether there is a file or folder; False for a name that is too long, or in a folder that may not be read."""
    try:
        return path.exists()
    except OSError:
        return False
