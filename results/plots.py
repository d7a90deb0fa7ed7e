"""Plots of a ranking as PNG images. Matplotlib is imported when one is drawn, with no display needed."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from results.loads import load_words
from results.ranked_settings import RankedSetting
from results.ranking import Ranking
from results.speedups import LoadNumbers
from results.summary import Estimate
from search_spaces.config import layout_label

logger = logging.getLogger(__name__)

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#4B4B4B")
"""Okabe and Ito's colours (distinguishable for the colour-blind), darkened where white needs it, and two more."""

MARKERS = ("o", "s", "^", "D", "v", "P")
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


def plots(ranking: Ranking) -> dict[str, bytes]:
    """Every plot that the ranking has data for, PNG by name; empty when nothing was measured.

    One that cannot be drawn is logged and left out: the others and all numbers do not depend on it.
    """
    drawn: dict[str, Callable[[Ranking, Any], bool]] = {
        "accept_length_and_throughput": _scatter,
        "layouts": _layout_bars,
        "acceptance_by_position": _positions,
    }
    images = {}
    for name, draw in drawn.items():
        try:
            with open_axes() as (figure, axes):
                if draw(ranking, axes):
                    buffer = io.BytesIO()
                    figure.savefig(buffer, format="png", metadata={"Software": None})
                    images[name] = buffer.getvalue()
        except Exception:
            logger.warning("the plot %s could not be drawn", name, exc_info=True)
    return images


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


def _layouts(ranking: Ranking) -> list[str]:
    """Measured layouts in the order of their best setting: a layout has one colour in every plot."""
    measured = [row for row in ranking.settings if row.cell is not None and row.setting.effective.layout is not None]
    return list(dict.fromkeys(_label(row) for row in measured))


def _colour(ranking: Ranking, layout: str) -> str:
    return PALETTE[_layouts(ranking).index(layout) % len(PALETTE)]


def _label(row: RankedSetting) -> str:
    return layout_label(row.setting.effective.layout or ())


def _named(row: RankedSetting) -> str:
    others = [label for label in row.setting.labels if label != _label(row)]
    return f"{_label(row)} ({', '.join(others)})" if others else _label(row)


def _numbers(row: RankedSetting, ranking: Ranking) -> LoadNumbers | None:
    return next((one for one in row.loads if one.load == ranking.load and one.throughput is not None), None)


def _bars(estimate: Estimate) -> list[list[float]]:
    # matplotlib refuses lengths below 0: in older records rounding may have put a value just outside its interval
    return [[max(0.0, estimate.value - estimate.low)], [max(0.0, estimate.high - estimate.value)]]


def _scatter(ranking: Ranking, axes: Any) -> bool:
    """Accept length against throughput: a cloud along a line says acceptance decides, one across it says cost does."""
    rows = [(row, numbers) for row in ranking.settings if (numbers := _numbers(row, ranking)) and row.accept_length]
    if not rows:
        return False
    sizes = sorted({row.setting.effective.tp_size for row, _ in rows})
    for row, numbers in rows:
        if row.accept_length is None or numbers.throughput is None:
            continue
        axes.errorbar(
            row.accept_length.value,
            numbers.throughput.value,
            xerr=_bars(row.accept_length),
            yerr=_bars(numbers.throughput),
            fmt=MARKERS[sizes.index(row.setting.effective.tp_size) % len(MARKERS)],
            color=_colour(ranking, _label(row)),
            markersize=7,
            elinewidth=1,
            alpha=0.9,
            markeredgecolor="white",
        )
    _baseline_lines(ranking, axes)
    _mark(ranking, axes)
    _layout_legend(ranking, axes, [row for row, _ in rows], sizes)
    load = "" if ranking.load is None else f" at {load_words(ranking.load)}"
    axes.set(xlabel="accept length (tokens per verify step)", ylabel=f"output tokens/s{load}")
    axes.set_title("Throughput against accept length")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.04)
    return True


def _baseline_lines(ranking: Ranking, axes: Any) -> None:
    for row in ranking.baselines:
        numbers = _numbers(row, ranking)
        if numbers is not None and numbers.throughput is not None:
            axes.axhline(numbers.throughput.value, color=BASELINE_COLOUR, linewidth=1.2, linestyle="--", zorder=1)
            axes.annotate(
                f"no speculation, tp {row.setting.effective.tp_size}",
                (1, numbers.throughput.value),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 3),
                textcoords="offset points",
                ha="right",
                color="#5A5A5A",
                fontsize=8.5,
            )


def _mark(ranking: Ranking, axes: Any) -> None:
    """Ring and name the two points that the report is about."""
    axes.margins(0.12)
    low, high = axes.get_xlim()
    suspect = ranking.suspect()
    marked = [(ranking.choice, "run this")]
    if suspect is not None and (ranking.choice is None or suspect.setting is not ranking.choice.setting):
        marked.append((suspect, "suspect" if "suspect" in suspect.setting.roles else "as shipped"))
    for row, words in marked:
        numbers = _numbers(row, ranking) if row is not None else None
        if row is None or numbers is None or numbers.throughput is None or row.accept_length is None:
            continue
        x, y = row.accept_length.value, numbers.throughput.value
        axes.plot(x, y, marker="o", markersize=14, markerfacecolor="none", markeredgecolor="#222222", zorder=4)
        left = x < (low + high) / 2
        axes.annotate(
            f"{words}: {row.setting.effective.triple}",
            (x, y),
            xytext=(-6 if left else 6, 12),
            textcoords="offset points",
            ha="left" if left else "right",
            fontsize=9,
            fontweight="bold",
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
            zorder=5,
        )


def _layout_legend(ranking: Ranking, axes: Any, rows: Sequence[RankedSetting], sizes: Sequence[int]) -> None:
    from matplotlib.lines import Line2D

    named: dict[str, set[str]] = {}
    for row in rows:
        named.setdefault(_label(row), set()).update(label for label in row.setting.labels if label != _label(row))
    handles = [
        Line2D([], [], linestyle="", marker="o", color=_colour(ranking, layout), markersize=7,
               label=f"layout {layout} ({', '.join(sorted(others))})" if others else f"layout {layout}")
        for layout, others in named.items()
    ]  # fmt: skip
    if len(sizes) > 1:
        handles += [
            Line2D(
                [], [], linestyle="", marker=MARKERS[at % len(MARKERS)], color="#4B4B4B", markersize=7, label=f"tp {tp}"
            )
            for at, tp in enumerate(sizes)
        ]
    axes.figure.legend(handles=handles, loc="outside right upper", fontsize=9)


def _layout_bars(ranking: Ranking, axes: Any) -> bool:
    """The accept length of every layout at one and the same triple and TP size: layouts compared, nothing else."""
    rows = [row for row in ranking.settings if row.accept_length is not None and row.cell is not None]
    if not rows:
        return False
    reference = ranking.choice or rows[0]
    effective = reference.setting.effective
    alike = [
        row
        for row in rows
        if (row.setting.effective.triple, row.setting.effective.tp_size, row.setting.effective.flags)
        == (effective.triple, effective.tp_size, effective.flags)
    ]
    alike.sort(key=lambda row: row.accept_length.value if row.accept_length else 0.0)
    for at, row in enumerate(alike):
        if row.accept_length is None:
            continue
        value = row.accept_length
        axes.barh(
            at, value.value, height=0.62, color=_colour(ranking, _label(row)), xerr=_bars(value), ecolor="#4B4B4B"
        )
        axes.annotate(f"{value.value:.2f}", (value.high, at), xytext=(6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(alike)), [_named(row) for row in alike])
    if effective.triple is not None:
        axes.axvline(effective.triple.ceiling, color=BASELINE_COLOUR, linewidth=1.2, linestyle="--")
        axes.annotate(
            "ceiling",
            (effective.triple.ceiling, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3, -10),
            textcoords="offset points",
            ha="right",
            color="#5A5A5A",
            fontsize=8.5,
        )
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="accept length (tokens per verify step)", xlim=(0, None), ylim=(-0.6, max(1.6, len(alike) - 0.2)))
    axes.set_title(f"Accept length by layout at {effective.triple}, tp {effective.tp_size}")
    return True


def _positions(ranking: Ranking, axes: Any) -> bool:
    """Acceptance by position: a wrong layout loses the first position, a short triple only cuts the line."""
    rows = [row for row in ranking.settings if row.cell is not None and row.cell.acceptance_by_position]
    if not rows:
        return False
    triple = (ranking.choice or rows[0]).setting.effective.triple
    rows.sort(key=lambda row: row.setting.effective.triple != triple)  # stable: the best of each kind stays first
    chosen: dict[str, RankedSetting] = {}
    for row in rows:
        chosen.setdefault(_label(row), row)
    longest = 0
    for layout in _layouts(ranking)[: len(PALETTE)]:
        shown = chosen.get(layout)
        if shown is None or shown.cell is None or not shown.cell.acceptance_by_position:
            continue
        shares = shown.cell.acceptance_by_position
        longest = max(longest, len(shares))
        label = f"layout {_named(shown)} at {shown.setting.effective.triple}"
        axes.plot(
            range(1, len(shares) + 1),
            shares,
            marker="o",
            linewidth=2,
            markersize=6,
            color=_colour(ranking, layout),
            label=label,
        )
    axes.set_xticks(range(1, longest + 1))
    axes.set(
        xlabel="draft position", ylabel="share of verify steps accepting it", ylim=(0, 1), xlim=(0.7, longest + 0.3)
    )
    axes.set_title("Acceptance by draft position")
    axes.legend(loc="upper right", fontsize=9)
    return True
