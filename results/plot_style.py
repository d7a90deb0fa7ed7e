"""How every plot looks: palette, axes of its own, and one colour and name for a layout wherever it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from results.ranked_settings import RankedSetting
from results.ranking import Ranking
from results.summary import Estimate
from search_spaces.config import layout_label

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#4B4B4B")
"""Okabe and Ito's colours (distinguishable for the colour-blind), darkened where white needs it, and two more."""

BASELINE_COLOUR = "#8A8A8A"
_STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "axes.edgecolor": "#6E6E6E",
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 10,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
}


@contextmanager
def open_axes() -> Iterator[tuple[Any, Any]]:
    """A figure of its own, outside pyplot: no global state, no display."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 4.4))
        FigureCanvasAgg(figure)
        yield figure, figure.add_subplot()


def layouts_of(ranking: Ranking) -> list[str]:
    """Measured layouts in the order of their best setting: a layout has one colour in every plot."""
    measured = [row for row in ranking.settings if row.cell is not None and row.setting.effective.layout is not None]
    return list(dict.fromkeys(label_of(row) for row in measured))


def colour_of(ranking: Ranking, layout: str) -> str:
    """ValueError for a layout that is not among the measured ones."""
    return PALETTE[layouts_of(ranking).index(layout) % len(PALETTE)]


def label_of(row: RankedSetting) -> str:
    """The taps of its layout."""
    return layout_label(row.setting.effective.layout or ())


def full_label(row: RankedSetting) -> str:
    """The taps of its layout, with the other names under which it was asked for."""
    others = [label for label in row.setting.labels if label != label_of(row)]
    return f"{label_of(row)} ({', '.join(others)})" if others else label_of(row)


def error_bars(estimate: Estimate) -> list[list[float]]:
    """The interval as Matplotlib wants it: distances from the value, shape [2, 1]."""
    # matplotlib refuses lengths below 0: in older records rounding may have put a value just outside its interval
    return [[max(0.0, estimate.value - estimate.low)], [max(0.0, estimate.high - estimate.value)]]
