"""Writing that survives a crash: a file or folder is there whole, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

TEMPORARY_PREFIX = ".tmp-"
PIECE_BYTES = 16 * 2**20
"""How much of a large file is in memory at once."""


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pieces_of(path: Path, size_bytes: int) -> Iterator[bytes]:
    """The first `size_bytes` of a file, at most `PIECE_BYTES` at once. EOFError when it is shorter."""
    with path.open("rb") as file:
        left = size_bytes
        while left > 0:
            piece = file.read(min(left, PIECE_BYTES))
            if not piece:
                raise EOFError(f"{path}: {left} bytes are missing")
            left -= len(piece)
            yield piece


def write_fsynced(path: Path, content: Iterable[bytes], mode: int = 0o644) -> None:
    """Write a new file, piece by piece, and wait until all of it is on the disk. FileExistsError when the name is
    taken."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        for piece in content:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` under a name, atomically and durably: a reader sees the old content or the new, never a part."""
    replace_file_by_pieces(path, (content,))


def replace_file_by_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """`replace_file` for a content that need not be in memory as a whole."""
    # by chance, not by process id alone: a writer that died in another container had the same one
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        write_fsynced(temporary, pieces)
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
            write_fsynced(temporary / name, (content,), mode)
        fsync_directory(temporary)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    fsync_directory(path.parent)


def remove_leftovers(path: Path) -> tuple[str, ...]:
    """Remove what interrupted writers left in a directory; returns the names. Only for the one writer.

    A directory that does not exist holds nothing.
    """
    if not path.is_dir():
        return ()
    names = sorted(entry.name for entry in path.iterdir() if entry.name.startswith(TEMPORARY_PREFIX))
    for name in names:
        entry = path / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return tuple(names)
