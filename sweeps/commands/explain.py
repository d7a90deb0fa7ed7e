"""`specsweep explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.commands.options import AsJson, print_json
from sweeps.commands.paragraphs import paragraph

if TYPE_CHECKING:
    from results.verdicts import Explanation


def explain(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="JSONL rows, SGLang server logs or /server_info dumps.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Say which of config, layout and parallelism costs acceptance, from observations measured anywhere.

    Rows are JSON objects, one a line; the fields are in docs/json.md. What the observations cannot tell is said to be
    undecided, with what to measure next.
    """
    explanation = explain_files(files)
    if as_json:
        print_json(explanation.to_json())
    else:
        typer.echo(show_explanation(explanation))


def explain_files(files: list[Path]) -> Explanation:
    """The explanation of all rows in all files. Raises `InputError`."""
    from results.explain.explanation import explain as explain_rows
    from results.explain.sources import read_observations

    return explain_rows([row for file in files for row in read_observations(file)])


def show_explanation(explanation: Explanation) -> str:
    """The explanation for a terminal. `isolate` prints its verdicts the same way."""
    lines: list[str] = []
    if explanation.gap is not None:
        lines += [*paragraph("", _gap_line(explanation.gap)), ""]
    for verdict in explanation.verdicts:
        share = "" if verdict.share is None else f", share {verdict.share:+.2f}"
        if verdict.interval is not None:
            share += f" [{verdict.interval[0]:+.2f}, {verdict.interval[1]:+.2f}]"
        lines += paragraph(f"{verdict.cause}: {verdict.verdict.upper()}{share}. ", verdict.evidence)
        if verdict.next:
            lines += paragraph("    next: ", verdict.next)
    if explanation.other:
        lines.append("")
        for other in explanation.other:
            lines += paragraph(f"{other.kind}: {other.verdict}. ", other.evidence)
    return "\n".join(lines)


def _gap_line(gap: Any) -> str:
    suspect = gap["suspect"]
    text = f"{suspect['label']}: accept length {suspect['accept_length']:.2f}"
    if "reference" in gap:
        reference = gap["reference"]
        text += f", against {reference['accept_length']:.2f} of {reference['label']} ({gap['value']:+.2f} to gain)"
    if "throughput" in gap:
        text += f"; {gap['throughput']['speedup']:.2f} x the baseline's throughput"
    return text
