"""`specsweep surface`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import EnvironmentProblem, InputError
from sweeps.commands.options import AsJson, Study, print_json

if TYPE_CHECKING:
    from results.store import StudyFolder
    from results.surface import SurfacePoint

COLUMNS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Tree sizes that the printed table shows when nothing else is asked for."""

DraftTokens = Annotated[
    list[int] | None,
    typer.Option("--draft-tokens", metavar="N", min=2, help="Look at trees of this size only. May be repeated."),
]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Draw a heat map per topk into the study's folder.")]


def surface(study: Study, draft_tokens: DraftTokens = None, plots: Plots = True, as_json: AsJson = False) -> None:
    """Show the accept length of every setting that a study's traces cover, measured or not.

    Replayed from traces the numbers are exact for the traced prompts; the intervals are over prompts. Where a study has
    only measured a chain, shorter chains are estimated, and marked so. Writes surface.json and the plots into the
    study's folder, if it can be written; nothing with --draft-tokens.

    Example: specsweep surface demo --draft-tokens 8 --draft-tokens 16
    """
    from results.store import StudyFolder
    from results.study_surface import SURFACE_FILE, study_surface
    from results.surface import surface_json
    from sweeps.home import find_study, home_folder

    place = find_study(study, home_folder())
    folder = StudyFolder(place.folder)
    points = study_surface(folder, draft_tokens)
    if not points:
        raise InputError(f"study {place.name!r}: has neither a trace nor a measured chain (eagle_topk 1)")
    content = surface_json(points)
    written: list[str] = []
    if draft_tokens is None:  # what is kept is the whole surface
        try:
            folder.write_file(folder.path / SURFACE_FILE, json.dumps(content) + "\n")
            written = _draw(points, folder) if plots else []
        except EnvironmentProblem as problem:
            typer.echo(f"specsweep: the surface was not kept: {problem}", err=True)
    if as_json:
        print_json(content)
        return
    typer.echo(show_surface(points, draft_tokens))
    if written:
        typer.echo(f"\nplots in {folder.path}: {', '.join(written)}")


def _draw(points: Sequence[SurfacePoint], folder: StudyFolder) -> list[str]:
    from results.surface_plot import surface_plots

    images = {f"{name}.png": image for name, image in surface_plots(points).items()}
    for name, image in images.items():
        folder.write_file(folder.path / name, image)
    return list(images)


def show_surface(points: Sequence[SurfacePoint], draft_tokens: Sequence[int] | None = None) -> str:
    """One block per trace: steps down, tree sizes across."""
    from results.surface_plot import families

    return "\n\n".join(_show_family(group, draft_tokens) for group in families(points).values())


def _show_family(group: Sequence[SurfacePoint], draft_tokens: Sequence[int] | None) -> str:
    from search_spaces.config import layout_label
    from sweeps.text_table import format_table

    first = group[0]
    how = "exact for the traced prompts" if first.method == "replay" else "estimated from a longer chain's histogram"
    flags = "".join(f", {name} {value}" for name, value in first.flags)
    where = f"layout {layout_label(first.layout)}, tp {first.tp_size}, topk {first.triple.eagle_topk}{flags}"
    head = f"{where}: accept length, {how}"
    widest = max(point.accept_length.relative_half_width for point in group)
    tail = f"intervals over {first.accept_length.count} prompts: at most +-{100 * widest:.1f} %"
    if first.triple.eagle_topk == 1:
        rows = [(point.triple.num_steps, *_cells(point)) for point in group]
        table = format_table(("num_steps", "accept_length", "low", "high", "rounds"), rows)
        return f"{head}\n{table}\n  {tail}"
    sizes = sorted({point.triple.num_draft_tokens for point in group} & set(draft_tokens or COLUMNS))
    values = {(p.triple.num_steps, p.triple.num_draft_tokens): p.accept_length.value for p in group}
    steps = sorted({point.triple.num_steps for point in group})
    rows = [(step, *(_number(values.get((step, size))) for size in sizes)) for step in steps]
    table = format_table(("num_steps", *(f"n={size}" for size in sizes)), rows)
    ties = max(point.tied_positions for point in group)
    return f"{head}\n{table}\n  {tail}" + (f"; at up to {ties} positions a tie decided" if ties else "")


def _cells(point: SurfacePoint) -> tuple[object, ...]:
    estimate = point.accept_length
    return (f"{estimate.value:.3f}", f"{estimate.low:.3f}", f"{estimate.high:.3f}", point.rounds)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
