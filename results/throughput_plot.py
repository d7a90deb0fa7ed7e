"""The plot of throughput against accept length: one point per setting, and the two that the report is about marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from results.loads import load_words
from results.plot_style import BASELINE_COLOUR, colour_of, error_bars, label_of
from results.ranked_settings import RankedSetting
from results.ranking import Ranking
from results.speedups import LoadNumbers

MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_scatter(ranking: Ranking, axes: Any) -> bool:
    """Accept length against throughput: a cloud along a line says acceptance decides, one across it says cost does.

    False when there is nothing to draw.
    """
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
            xerr=error_bars(row.accept_length),
            yerr=error_bars(numbers.throughput),
            fmt=MARKERS[sizes.index(row.setting.effective.tp_size) % len(MARKERS)],
            color=colour_of(ranking, label_of(row)),
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
        named.setdefault(label_of(row), set()).update(label for label in row.setting.labels if label != label_of(row))
    handles = [
        Line2D([], [], linestyle="", marker="o", color=colour_of(ranking, layout), markersize=7,
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


def _numbers(row: RankedSetting, ranking: Ranking) -> LoadNumbers | None:
    return next((one for one in row.loads if one.load == ranking.load and one.throughput is not None), None)
