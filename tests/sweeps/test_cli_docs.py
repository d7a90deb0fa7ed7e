"""The command line is an interface: changing a command or an option must be seen in a review."""

from __future__ import annotations

from cli_docs import PAGE, page


def test_the_page_on_the_command_line_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python tests/sweeps/cli_docs.py"
