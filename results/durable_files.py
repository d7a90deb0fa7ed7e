"""Writing that survives a crash: a file or folder is there whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TEMPORARY_PREFIX = ".tmp-"


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_fsynced(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a new file and wait until its content is on the disk. FileExistsError when the name is taken."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` under a name, atomically and durably: a reader sees the old content or the new, never a part."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{os.getpid()}")
    try:
        write_fsynced(temporary, content)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    fsync_directory(path.parent)


def create_folder(path: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Create a folder with its files (content, mode), atomically and durably, through a temporary one beside it.

    FileExistsError when the name is taken, which is left as it is. On any other error nothing of the folder remains.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
    if temporary.exists():
        shutil.rmtree(temporary)
    try:
        temporary.mkdir()
        for name, (content, mode) in files.items():
            write_fsynced(temporary / name, content, mode)
        fsync_directory(temporary)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    fsync_directory(path.parent)


def remove_leftovers(path: Path) -> tuple[str, ...]:
    """Remove what interrupted writers left in a directory; returns the names. Only for the one writer."""
    names = sorted(entry.name for entry in path.iterdir() if entry.name.startswith(TEMPORARY_PREFIX))
    for name in names:
        entry = path / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return tuple(names)
