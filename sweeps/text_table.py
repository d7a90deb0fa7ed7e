"""Plain aligned tables, the same on a terminal, in a pipe and in a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "  ") -> str:
    """Columns two spaces apart under a header; columns of numbers to the right, others to the left, None as `-`."""
    cells = [list(row) for row in rows]
    lines = [list(header), *(["-" if cell is None else str(cell) for cell in row] for row in cells)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    numeric = [
        all(cell is None or isinstance(cell, int | float) for cell in column) for column in zip(*cells, strict=True)
    ]
    return "\n".join(indent + _line(line, widths, numeric or [False] * len(header)) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    columns = zip(cells, widths, numeric, strict=True)
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns).rstrip()
