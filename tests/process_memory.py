"""How much memory a server holds: all its processes together, pages that they share counted once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.engines.guard import descendants

MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Memory:
    """MB (10^6 bytes) of a process and all its descendants, as the kernel counts them in `smaps_rollup`.

    `pss` is what they hold with shared pages divided among their holders; `anonymous` the part of it that is no file's
    (private memory and shared memory), which nothing can take back while there is no swap; `rss` the plain sum.
    """

    pss: float
    anonymous: float
    rss: float
    processes: int


def memory_of(pid: int) -> Memory:
    """A process that ends meanwhile is left out."""
    totals = {"Pss": 0, "Pss_Anon": 0, "Pss_Shmem": 0, "Rss": 0}
    processes = 0
    for member in (pid, *(process[0] for process in descendants(pid))):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{member}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
            for name, value in (line.split(":") for line in lines):
                if name in totals:
                    totals[name] += int(value.split()[0]) * 1024
            processes += 1
    return Memory(
        pss=round(totals["Pss"] / MB, 1),
        anonymous=round((totals["Pss_Anon"] + totals["Pss_Shmem"]) / MB, 1),
        rss=round(totals["Rss"] / MB, 1),
        processes=processes,
    )


@contextmanager
def watching(pid: int, every_s: float) -> Iterator[list[Memory]]:
    """The memory at the block's beginning, every so often within it, and at its end."""
    seen = [memory_of(pid)]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            seen.append(memory_of(pid))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()
        seen.append(memory_of(pid))
