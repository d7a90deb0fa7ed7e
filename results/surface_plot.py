"""The acceptance surface as images: a heat map per traced topk, a curve for chains."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from results.plot_style import PALETTE, open_axes
from results.surface import Method, SurfacePoint
from results.traces import flags_mark
from search_spaces.config import Flags, Taps, layout_label

Family = tuple[Taps, int, Flags, int, Method]
"""(layout, tp_size, flags, eagle_topk, method): the points that come from one trace, or from one histogram."""


def families(points: Sequence[SurfacePoint]) -> dict[Family, tuple[SurfacePoint, ...]]:
    """Points by what they come from, in the order in which they are given."""
    found: dict[Family, list[SurfacePoint]] = {}
    for point in points:
        key = (point.layout, point.tp_size, point.flags, point.triple.eagle_topk, point.method)
        found.setdefault(key, []).append(point)
    return {key: tuple(group) for key, group in found.items()}


def surface_plots(points: Sequence[SurfacePoint]) -> dict[str, bytes]:
    """One PNG per family, by a name that is fit for a file."""
    images = {}
    for (layout, tp_size, flags, topk, method), group in families(points).items():
        taps = layout_label(layout).replace(",", "-")
        with open_axes() as (figure, axes):
            axes.set_title(_title(group[0]))
            if topk == 1:
                _draw_curve(axes, group)
            else:
                _draw_heat_map(figure, axes, group)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", metadata={"Software": None})
        name = f"surface-taps{taps}-tp{tp_size}-k{topk}" + (f"-{flags_mark(flags)}" if flags else "")
        images[name + ("-estimate" if method == "survival" else "")] = buffer.getvalue()
    return images


def _title(point: SurfacePoint) -> str:
    what = f"Accept length: layout {layout_label(point.layout)}, tp {point.tp_size}, topk {point.triple.eagle_topk}"
    what += "".join(f", {name} {value}" for name, value in point.flags)
    return what + (" (estimate)" if point.method == "survival" else "")


def _draw_curve(axes: Any, group: Sequence[SurfacePoint]) -> None:
    steps = [point.triple.num_steps for point in group]
    values = [point.accept_length.value for point in group]
    axes.fill_between(
        steps,
        [point.accept_length.low for point in group],
        [point.accept_length.high for point in group],
        color=PALETTE[0],
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(steps, values, marker="o", color=PALETTE[0])
    axes.set_xticks(steps)
    axes.set_xlabel("num_steps")
    axes.set_ylabel("accept length (95 % interval over prompts)")


def _draw_heat_map(figure: Any, axes: Any, group: Sequence[SurfacePoint]) -> None:
    """Steps upwards, draft tokens to the right; what SGLang cannot run stays white."""
    steps = sorted({point.triple.num_steps for point in group})
    sizes = sorted({point.triple.num_draft_tokens for point in group})
    grid = np.full((len(steps), len(sizes)), np.nan)
    for point in group:
        grid[steps.index(point.triple.num_steps), sizes.index(point.triple.num_draft_tokens)] = (
            point.accept_length.value
        )
    image = axes.imshow(grid, aspect="auto", origin="lower", cmap="viridis", interpolation="nearest")
    figure.colorbar(image, ax=axes, label="accept length")
    axes.grid(visible=False)
    axes.set_yticks(range(len(steps)), [str(step) for step in steps])
    shown = range(0, len(sizes), max(1, len(sizes) // 12))
    axes.set_xticks(list(shown), [str(sizes[i]) for i in shown])
    axes.set_ylabel("num_steps")
    axes.set_xlabel("num_draft_tokens")
    if grid.size <= 80:
        for (row, column), value in np.ndenumerate(grid):
            if np.isfinite(value):
                bright = value > np.nanmin(grid) + 0.6 * (np.nanmax(grid) - np.nanmin(grid))
                colour = "black" if bright else "white"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
