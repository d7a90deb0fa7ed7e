"""Safetensors headers: names, types and shapes of tensors, without reading a weight.

Format (safetensors README, "Format"): 8 bytes little-endian header length, that many bytes of JSON, then the data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from search_spaces.errors import InputError
from search_spaces.model_facts import TensorFacts

MAX_HEADER_BYTES = 100_000_000
"""The limit of the reference implementation (safetensors, `MAX_HEADER_SIZE`)."""

_LFS_PREFIX = b"version https://git-lfs"


class TensorPlace(NamedTuple):
    """Where a tensor lies: its file, its first byte there, its length in bytes, and what the header says of it.

    A named tuple because a large checkpoint has a hundred thousand of them.
    """

    file: Path
    offset: int
    length: int
    facts: TensorFacts


@dataclass(frozen=True, kw_only=True)
class HeaderScan:
    """All headers of one checkpoint. `unread` says why there are none; `problems` are faults short of a bad header."""

    places: dict[str, TensorPlace] = field(default_factory=dict)
    unread: str | None = None
    problems: tuple[str, ...] = ()


def scan_headers(folder: Path, keep: Callable[[str], bool] = lambda _: True) -> HeaderScan:
    """Read every safetensors header of a checkpoint folder, keeping the tensors whose name `keep` accepts.

    Costs one open file and one header at a time, whatever the size of the weights. Raises `InputError`, naming the
    file, for a header that cannot be one.
    """
    files, missing = _weight_files(folder)
    if not files and not missing:
        return HeaderScan(unread=_why_unread(folder))
    places: dict[str, TensorPlace] = {}
    known: dict[Any, TensorFacts] = {}
    problems = [f"{name} is named by the index but is not there" for name in missing]
    for file in files:
        header, data_start, size = _read_header(file)
        end = data_start
        for name, entry in header.items():
            first, last = _data_offsets(file, name, entry)
            end = max(end, data_start + last)
            if keep(name):
                places[name] = TensorPlace(file, data_start + first, last - first, _facts(file, name, entry, known))
        if end > size:
            problems.append(f"{file.name} holds {size} bytes of the {end} that its header declares")
    return HeaderScan(places=places, problems=tuple(problems))


def read_tensor_bytes(place: TensorPlace, limit: int) -> bytes | None:
    """The bytes of one small tensor; None when it is larger than `limit` bytes or the file ends before it."""
    if place.length > limit:
        return None
    with place.file.open("rb") as handle:
        handle.seek(place.offset)
        content = handle.read(place.length)
    return content if len(content) == place.length else None


def _weight_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Files that hold weights and names that an index lists without a file. The index decides where there is one."""
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if not indexes:
        return sorted(file for file in folder.glob("*.safetensors") if file.is_file()), []
    index = indexes[0]
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise InputError(f"{index}: not a safetensors index with a `weight_map` of file names ({error})") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise InputError(f"{index}: weight_map names {name!r}, which is not a file name in that folder")
    return [folder / name for name in names if (folder / name).is_file()], [
        name for name in names if not (folder / name).is_file()
    ]


def _why_unread(folder: Path) -> str:
    pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    if pickled:
        return f"only {pickled[0]} there: pickled weights are never opened; convert them to safetensors to check them"
    other = sorted(file.name for file in folder.glob("*.gguf"))
    if other:
        return f"only {other[0]} there: its header is not read"
    return "no *.safetensors file in the folder"


def _read_header(file: Path) -> tuple[dict[str, Any], int, int]:
    """The tensors of one header, the position of the first data byte and the size of the file."""
    try:
        with file.open("rb") as handle:
            size = file.stat().st_size
            start = handle.read(len(_LFS_PREFIX))
            if start == _LFS_PREFIX:
                raise InputError(f"{file}: a Git LFS pointer, not weights; fetch the file itself (git lfs pull)")
            if len(start) < 10:
                raise InputError(f"{file}: {size} bytes are too few for a safetensors header")
            (length,) = struct.unpack("<Q", start[:8])
            if length > size - 8 or length > MAX_HEADER_BYTES or start[8:9] != b"{":
                raise InputError(
                    f"{file}: not a safetensors header: it claims {length} bytes in a file of {size}"
                    f" (at most {MAX_HEADER_BYTES}, starting with '{{')"
                )
            handle.seek(8)
            header = json.loads(handle.read(length))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: the safetensors header is not JSON ({error})") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
    if not isinstance(header, dict):
        raise InputError(f"{file}: the safetensors header is not a mapping")
    header.pop("__metadata__", None)
    return header, 8 + length, size


def _data_offsets(file: Path, name: str, entry: Any) -> tuple[int, int]:
    try:
        first, last = entry["data_offsets"]
        if type(first) is int and type(last) is int and 0 <= first <= last:
            return first, last
    except (TypeError, KeyError, ValueError):
        pass
    raise _no_tensor(file, name, entry)


def _facts(file: Path, name: str, entry: dict[str, Any], known: dict[Any, TensorFacts]) -> TensorFacts:
    """The facts of an entry, shared between equal entries: a model has few shapes and many tensors."""
    dtype, shape = entry.get("dtype"), entry.get("shape")
    try:
        key = (dtype, *shape)  # type: ignore[misc]
        if key in known:
            return known[key]
    except TypeError:
        raise _no_tensor(file, name, entry) from None
    if not isinstance(dtype, str) or not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise _no_tensor(file, name, entry)
    known[key] = TensorFacts(dtype=dtype, shape=tuple(shape))
    return known[key]


def _no_tensor(file: Path, name: str, entry: Any) -> InputError:
    return InputError(
        f"{file}: header entry {name!r} is no tensor with dtype, shape and data_offsets: {str(entry)[:120]}"
    )
