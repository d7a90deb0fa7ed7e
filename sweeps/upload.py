"""What a job takes along: one folder as a zip, small enough for Ray's job server."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from search_spaces.errors import InputError

MAX_UPLOAD_BYTES = 100 * 2**20
"""Ray's job server takes no larger request (`DASHBOARD_CLIENT_MAX_SIZE`); seen as HTTP 413 on 2.60."""

MAX_FOLDER_BYTES = 2**30
"""Beyond this no compression helps, and trying would only take time."""

LEFT_OUT = frozenset({".git", ".venv", "venv", "__pycache__"})
"""Folders that Ray itself leaves out by default."""

WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
"""Endings of files that do not get smaller in a zip."""

LARGEST_SHOWN = 5
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


def pack(folder: Path, archive: Path, needed: Mapping[str, Path] | None = None) -> int:
    """Writes `folder` to a zip and returns its size; equal content gives equal bytes, so Ray uploads it once.

    Left out are what git ignores and `LEFT_OUT`. InputError that lists the largest files when the zip would be larger
    than Ray takes; `archive` is then removed. InputError when a file or folder that is `needed`, by what needs it and
    relative to `folder`, is among what is left out.
    """
    files = sorted(files_to_send(folder))
    _require(folder, frozenset(files), needed or {})
    sizes = {file: (folder / file).stat().st_size for file in files}
    total = sum(sizes.values())
    weights = sum(size for file, size in sizes.items() if file.suffix in WEIGHTS)
    if total > MAX_FOLDER_BYTES or weights > MAX_UPLOAD_BYTES:
        raise _too_large(folder, files, total)
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            for file in files:
                _add(packed, folder, file)
                if packed.fp is not None and packed.fp.tell() > MAX_UPLOAD_BYTES:
                    raise _too_large(folder, files, total)
        size = archive.stat().st_size
        if size > MAX_UPLOAD_BYTES:
            raise _too_large(folder, files, total)
    except InputError:
        archive.unlink(missing_ok=True)
        raise
    return size


def files_to_send(folder: Path) -> Iterator[Path]:
    """The files of `folder`, relative to it: those git does not ignore, all of them outside a work tree."""
    kept = _not_ignored(folder)
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in names:
            file = (Path(root) / name).relative_to(folder)
            if (kept is None or file in kept) and (folder / file).is_file():
                yield file


def _require(folder: Path, sent: Container[Path], needed: Mapping[str, Path]) -> None:
    for key, place in needed.items():
        files = [place]
        if (folder / place).is_dir():
            inside = sorted(path for path in (folder / place).iterdir() if path.is_file())
            # what tools leave beside a model, such as .gitattributes, is no loss
            files = [path.relative_to(folder) for path in inside if not path.name.startswith(".")]
        lost = next((file for file in files if file not in sent), None)
        if lost is not None:
            raise InputError(
                f"{key}: {lost} would not travel with {folder}: git ignores it, or it lies in a repository of its own "
                "or behind a link; give an absolute path that exists on the cluster, or another --working-dir"
            )


def _not_ignored(folder: Path) -> frozenset[Path] | None:
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return frozenset(Path(os.fsdecode(name)) for name in done.stdout.split(b"\0") if name)


def _add(packed: zipfile.ZipFile, folder: Path, file: Path) -> None:
    entry = zipfile.ZipInfo(str(file), date_time=_FIXED_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = ((folder / file).stat().st_mode & 0o777) << 16
    with (folder / file).open("rb") as source, packed.open(entry, "w", force_zip64=True) as target:
        while chunk := source.read(2**20):
            target.write(chunk)


def _too_large(folder: Path, files: Iterable[Path], total: int) -> InputError:
    sizes = sorted(((folder / file).stat().st_size, str(file)) for file in files)[::-1]
    largest = ", ".join(f"{name} ({show_bytes(size)})" for size, name in sizes[:LARGEST_SHOWN])
    return InputError(
        f"{folder}: {show_bytes(total)} are too much to send, Ray takes {show_bytes(MAX_UPLOAD_BYTES)}; largest: "
        f"{largest}; give models by an absolute path on the cluster and keep them out of the folder"
    )


def show_bytes(size: int) -> str:
    """`145.5 MiB`, or `12.0 KiB` for less than a tenth of that unit."""
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 / 10 else f"{size / 2**10:.1f} KiB"
