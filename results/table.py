"""The table of settings, as plain text cells, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from results.objective import METRIC_WORDS
from results.ranking import RankedSetting, Ranking
from results.summary import Estimate
from search_spaces.config import layout_label

if TYPE_CHECKING:
    from rich.table import Table

NOTHING = "-"


def layout_words(row: RankedSetting) -> str:
    """The taps, with the other labels under which they were asked for: `2,4,5 (shipped)`."""
    effective = row.setting.effective
    if effective.layout is None:
        return "no speculation"
    taps = layout_label(effective.layout)
    others = [label for label in row.setting.labels if label != taps]
    return f"{taps} ({', '.join(others)})" if others else taps


def setting_words(row: RankedSetting) -> str:
    """One setting in a few words: `layout 0,3,7 at (5,1,6), tp 2`."""
    effective = row.setting.effective
    flags = "".join(f", {name}={value}" for name, value in effective.flags)
    if effective.triple is None:
        return f"no speculation, tp {effective.tp_size}{flags}"
    return f"layout {layout_words(row)} at {effective.triple}, tp {effective.tp_size}{flags}"


def estimate_words(estimate: Estimate | None, digits: int) -> str:
    """`2.51 ±0.04`, half of the interval's width; the value alone when it has no interval."""
    if estimate is None:
        return NOTHING
    half_width = (estimate.high - estimate.low) / 2
    value = f"{estimate.value:.{digits}f}"
    return f"{value} ±{half_width:.{digits}f}" if half_width > 0 else value


def standing_words(row: RankedSetting, ranking: Ranking) -> str:
    """`best`, `tie`, `-12%`, `? -3%` (cannot tell), `not ranked`, `failed: oom`."""
    if row.status == "failed":
        kinds = [failure.kind for failure in row.setting.failures]
        return f"failed: {kinds[-1]}" if kinds else "not measured"
    if row.status == "not ranked":
        return "not ranked"
    comparison = row.against_best
    if row.is_baseline or comparison is None:
        return NOTHING
    chosen = " (run this)" if ranking.choice is not None and row.setting is ranking.choice.setting else ""
    if comparison.standing in ("best", "tie"):
        return comparison.standing + chosen
    sign = "-" if ranking.objective.direction == "maximize" else "+"
    loss = comparison.behind if sign == "-" else comparison.behind / (1 - comparison.behind)
    return f"{'? ' if comparison.standing == 'cannot tell' else ''}{sign}{abs(loss):.0%}" + chosen


def table_columns(ranking: Ranking) -> tuple[str, ...]:
    """The headers, throughput and speedup once for every load."""
    loads = ranking.loads
    single = len(loads) == 1
    per_load = [name for load in loads for name in _load_columns(load.label, single=single)]
    objective = () if _is_throughput(ranking) else (METRIC_WORDS[ranking.objective.metric],)
    return ("layout", "(s,k,n)", "tp", "accept length", "p1", *objective, *per_load, "launches", "standing")


def _load_columns(label: str, *, single: bool) -> tuple[str, str]:
    return ("tokens/s", "speedup") if single else (f"tokens/s @{label}", f"speedup @{label}")


def _is_throughput(ranking: Ranking) -> bool:
    return ranking.objective.metric in ("output_throughput", "accept_length")


def table_row(row: RankedSetting, ranking: Ranking) -> tuple[str, ...]:
    """One setting's cells, as many as `table_columns` has."""
    effective = row.setting.effective
    numbers = []
    for load in row.loads:
        mark = "*" if load.unfair else ""
        speedup = NOTHING if row.is_baseline else estimate_words(load.speedup, 2) + mark
        numbers += [estimate_words(load.throughput, 1), speedup]
    objective = () if _is_throughput(ranking) else (estimate_words(row.value, 2),)
    flags = "".join(f" {name}={value}" for name, value in effective.flags)
    return (
        layout_words(row),
        (NOTHING if effective.triple is None else str(effective.triple)) + flags,
        str(effective.tp_size),
        estimate_words(row.accept_length, 2),
        NOTHING if row.p1 is None else f"{row.p1:.2f}",
        *objective,
        *numbers,
        str(row.launches),
        standing_words(row, ranking),
    )


def table_rows(ranking: Ranking) -> list[tuple[str, ...]]:
    """Settings, best first, then baselines."""
    return [table_row(row, ranking) for row in (*ranking.settings, *ranking.baselines)]


def ranking_table(ranking: Ranking, *, title: str | None = None) -> Table:
    """For the terminal, by rich."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    for name in table_columns(ranking):
        left = name in ("layout", "standing")
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for row in ranking.settings:
        table.add_row(*map(Text, table_row(row, ranking)), style=_style(row, ranking))
    if ranking.settings and ranking.baselines:
        table.add_section()
    for row in ranking.baselines:
        table.add_row(*map(Text, table_row(row, ranking)))
    return table


def _style(row: RankedSetting, ranking: Ranking) -> str | None:
    if ranking.choice is not None and row.setting is ranking.choice.setting:
        return "bold green"
    return None if row.status == "ranked" else "dim"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A GitHub-flavoured table; bars in cells are escaped."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(columns), "|" + " --- |" * len(columns), *map(line, rows)])
