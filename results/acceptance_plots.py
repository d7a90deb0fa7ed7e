"""The plots of acceptance alone: accept length by layout, and the share accepted at each draft position."""

from __future__ import annotations

from typing import Any

from results.plot_style import BASELINE_COLOUR, PALETTE, colour_of, error_bars, full_label, label_of, layouts_of
from results.ranked_settings import RankedSetting
from results.ranking import Ranking


def draw_layout_bars(ranking: Ranking, axes: Any) -> bool:
    """The accept length of every layout at one and the same triple and TP size: layouts compared, nothing else.

    False when there is nothing to draw.
    """
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
            at,
            value.value,
            height=0.62,
            color=colour_of(ranking, label_of(row)),
            xerr=error_bars(value),
            ecolor="#4B4B4B",
        )
        axes.annotate(f"{value.value:.2f}", (value.high, at), xytext=(6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(alike)), [full_label(row) for row in alike])
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


def draw_positions(ranking: Ranking, axes: Any) -> bool:
    """Acceptance by position: a wrong layout loses the first position, a short triple only cuts the line.

    False when there is nothing to draw.
    """
    rows = [row for row in ranking.settings if row.cell is not None and row.cell.acceptance_by_position]
    if not rows:
        return False
    triple = (ranking.choice or rows[0]).setting.effective.triple
    rows.sort(key=lambda row: row.setting.effective.triple != triple)  # stable: the best of each kind stays first
    chosen: dict[str, RankedSetting] = {}
    for row in rows:
        chosen.setdefault(label_of(row), row)
    longest = 0
    for layout in layouts_of(ranking)[: len(PALETTE)]:
        shown = chosen.get(layout)
        if shown is None or shown.cell is None or not shown.cell.acceptance_by_position:
            continue
        shares = shown.cell.acceptance_by_position
        longest = max(longest, len(shares))
        label = f"layout {full_label(shown)} at {shown.setting.effective.triple}"
        axes.plot(
            range(1, len(shares) + 1),
            shares,
            marker="o",
            linewidth=2,
            markersize=6,
            color=colour_of(ranking, layout),
            label=label,
        )
    axes.set_xticks(range(1, longest + 1))
    axes.set(
        xlabel="draft position", ylabel="share of verify steps accepting it", ylim=(0, 1), xlim=(0.7, longest + 0.3)
    )
    axes.set_title("Acceptance by draft position")
    axes.legend(loc="upper right", fontsize=9)
    return True
