"""The page docs/cli.md, made from the commands' own help. `python tests/sweeps/cli_docs.py` writes it anew."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"
HEAD = """\
# The command line

Made from `specsweep COMMAND --help`; after a change run `python tests/sweeps/cli_docs.py`.
"""


def page() -> str:
    """Every command with its help, 100 columns wide."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from sweeps.cli import app

    runner = CliRunner()
    parts = [HEAD]
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "TERMINAL_WIDTH": "100"}):
        for name in ["", *get_command(app).commands]:  # type: ignore[attr-defined]
            shown = runner.invoke(app, [*([name] if name else []), "--help"], prog_name="specsweep").output
            parts.append(f"## specsweep {name}".rstrip() + f"\n\n```\n{shown.strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
