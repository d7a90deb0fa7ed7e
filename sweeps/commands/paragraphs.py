"""Findings and verdicts as wrapped paragraphs for a terminal."""

from __future__ import annotations

import textwrap


def paragraph(head: str, text: str) -> list[str]:
    """`text` after `head`, wrapped at 110 columns, further lines indented; no word is broken."""
    return textwrap.wrap(
        text,
        width=110,
        initial_indent=head,
        subsequent_indent="        ",
        break_long_words=False,
        break_on_hyphens=False,
    )
