"""How the files of a trace get from their group to the driver: not at all on one filesystem, else piece by piece.

The outcome of a trace names files in a folder of its group. The driver that can read the group's mark there takes them
where they lie; another one fetches them into a folder of its own, one bounded piece at a time.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from results.durable_files import PIECE_BYTES, write_fsynced
from results.trace_segments import TracedFiles

MARK_FILE = "group"

ReadPiece = Callable[[str, int, int], bytes]
"""(name of a file in the group's folder, offset, bytes at most) to the bytes there."""


class TraceFolder:
    """The folder of one side, made when it is needed: at `place`, else a temporary one.

    At most one trace is in it: the next one takes its place. A place of one's own is emptied by whoever comes after a
    process that was killed.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._path: Path | None = None

    def renew(self) -> Path:
        """An empty folder; what the last one held is gone."""
        self.clear()
        if self._place is None:
            self._path = Path(tempfile.mkdtemp(prefix="specsweep-trace-"))
        else:
            shutil.rmtree(self._place, ignore_errors=True)
            self._place.mkdir(parents=True)
            self._path = self._place
        return self._path

    def clear(self) -> None:
        """Idempotent."""
        path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)

    def read_piece(self, name: str, offset: int, size: int) -> bytes:
        """A part of a file in this folder or below. ValueError for a name that leads out of it."""
        if self._path is None:
            raise FileNotFoundError(f"{name}: the trace is gone")
        file = (self._path / name).resolve()
        if not file.is_relative_to(self._path.resolve()):
            raise ValueError(f"{name} is not in the folder of the trace")
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(size)


def signed(traced: TracedFiles) -> TracedFiles:
    """The files with a mark beside them, by which the driver knows the folder as this one."""
    mark = secrets.token_hex(16)
    (traced.folder / MARK_FILE).write_text(mark)
    return replace(traced, mark=mark)


def is_here(traced: TracedFiles) -> bool:
    """Whether the folder of the group is one of this machine's, too: the same node, or a shared filesystem."""
    with suppress(OSError, UnicodeDecodeError):
        return bool(traced.mark) and (traced.folder / MARK_FILE).read_text() == traced.mark
    return False


def fetch(traced: TracedFiles, read: ReadPiece, into: Path) -> TracedFiles:
    """The files of another machine, now in the folder `into`; at most `PIECE_BYTES` of them are in memory at once.

    Whatever `read` raises is raised. EOFError when a file is shorter than it was.
    """
    for segment in traced.segments:
        for name, size in segment.files:
            write_fsynced(into / name, _pieces(f"{traced.folder.name}/{name}", size, read))
    return replace(traced, folder=into, mark="")


def _pieces(name: str, size: int, read: ReadPiece) -> Iterator[bytes]:
    done = 0
    while done < size:
        piece = read(name, done, min(PIECE_BYTES, size - done))
        if not piece:
            raise EOFError(f"{name}: {size - done} bytes are missing")
        done += len(piece)
        yield piece
