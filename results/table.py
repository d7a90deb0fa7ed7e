"""The table of settings, as plain text cells, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.loads import load_words
from results.objective import METRIC_HEADS, METRIC_WORDS
from results.ranked_settings import RankedSetting
from results.ranking import Ranking
from results.speedups import LoadNumbers
from results.summary import Estimate
from search_spaces.config import layout_label

if TYPE_CHECKING:
    from rich.table import Table

NOTHING = "-"


def layout_words(row: RankedSetting) -> str:
    """The taps, with the other labels under which they were asked for: `2,4,5 (shipped)`."""
    effective = row.setting.effective
    if effective.layout is None:
        return "baseline"
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


def standing_legend(ranking: Ranking) -> str:
    """What the standings that occur in the table mean."""
    words = {
        "best": "`best` has the best value",
        "tie": "`tie` differs from it by no more than two launches of one setting do",
        "worse": "a percentage is by how much one is worse",
        "cannot tell": "with `?` the prompts and launches cannot tell whether it is",
    }
    found = {row.against_best.standing for row in ranking.settings if row.against_best is not None}
    parts = [said for standing, said in words.items() if standing in found or (standing == "worse" and len(found) > 1)]
    if any(row.status == "not ranked" for row in (*ranking.settings, *ranking.baselines)):
        parts.append("what is `not ranked` has its measured accept length in brackets, and the reason below")
    if any(row.status == "failed" for row in (*ranking.settings, *ranking.baselines)):
        parts.append("why one `failed` stands below")
    if parts and ranking.baselines:
        parts.append("a baseline has no standing, the speedups are over it")
    metric = METRIC_WORDS[ranking.objective.metric]
    at = "" if ranking.load is None else f" at {load_words(ranking.load)}"
    return f"Standing by {metric}{at}: {'; '.join(parts)}." if parts else "Nothing could be ranked."


@dataclass(frozen=True, kw_only=True)
class Detail:
    """How much a table shows: every load or the objective's, intervals or values alone, p1 and launches or not."""

    every_load: bool = True
    intervals: bool = True
    extras: bool = True


FULL = Detail()
_LESS_AND_LESS = (
    FULL,
    Detail(every_load=False),
    Detail(every_load=False, intervals=False),
    Detail(every_load=False, intervals=False, extras=False),
)


def table_columns(ranking: Ranking, detail: Detail = FULL) -> tuple[str, ...]:
    """The headers, throughput and speedup once for every load."""
    loads = _loads(ranking.loads, ranking, detail)
    per_load = [name for load in loads for name in _load_columns(load.label, single=len(loads) == 1)]
    objective = () if _is_shown_anyway(ranking) else (METRIC_HEADS[ranking.objective.metric],)
    p1, launches = (("p1",), ("launches",)) if detail.extras else ((), ())
    length = "accept length" if detail.intervals else "accept"
    return ("layout", "(s,k,n)", "tp", length, *p1, *objective, *per_load, *launches, "standing")


def _loads(loads: Sequence[LoadNumbers], ranking: Ranking, detail: Detail) -> list[LoadNumbers]:
    return [load for load in loads if detail.every_load or load.load == ranking.load]


def _load_columns(label: str, *, single: bool) -> tuple[str, str]:
    return ("tokens/s", "speedup") if single else (f"tokens/s @{label}", f"speedup @{label}")


def _is_shown_anyway(ranking: Ranking) -> bool:
    return ranking.objective.metric in ("output_throughput", "accept_length")


def table_row(row: RankedSetting, ranking: Ranking, detail: Detail = FULL) -> tuple[str, ...]:
    """One setting's cells, as many as `table_columns` has."""

    def words(estimate: Estimate | None, digits: int) -> str:
        if estimate is None or detail.intervals:
            return estimate_words(estimate, digits)
        return f"{estimate.value:.{digits}f}"

    effective = row.setting.effective
    numbers = []
    for load in _loads(row.loads, ranking, detail):
        speedup = NOTHING if row.is_baseline else words(load.speedup, 2) + ("*" if load.unfair else "")
        numbers += [words(load.throughput, 1), speedup]
    objective = () if _is_shown_anyway(ranking) else (words(row.value, 2),)
    flags = "".join(f" {name}={value}" for name, value in effective.flags)
    launches = (str(row.launches),)
    length, p1 = words(row.accept_length, 2), NOTHING if row.p1 is None else f"{row.p1:.2f}"
    if row.status == "not ranked":
        length, p1 = (text if text == NOTHING else f"({text})" for text in (length, p1))
    return (
        layout_words(row),
        (NOTHING if effective.triple is None else str(effective.triple)) + flags,
        str(effective.tp_size),
        length,
        *((p1,) if detail.extras else ()),
        *objective,
        *numbers,
        *(launches if detail.extras else ()),
        standing_words(row, ranking),
    )


def table_rows(ranking: Ranking, detail: Detail = FULL) -> list[tuple[str, ...]]:
    """Settings, best first, then baselines."""
    return [table_row(row, ranking, detail) for row in (*ranking.settings, *ranking.baselines)]


def detail_for(ranking: Ranking, width: int) -> Detail:
    """The most detail that fits into a terminal of that many columns; the least there is when none does."""
    return next((detail for detail in _LESS_AND_LESS if _width(ranking, detail) <= width), _LESS_AND_LESS[-1])


def _width(ranking: Ranking, detail: Detail) -> int:
    rows = [table_columns(ranking, detail), *table_rows(ranking, detail)]
    return 2 + sum(max(len(cell) for cell in column) + 2 for column in zip(*rows, strict=True))


def ranking_table(ranking: Ranking, *, width: int = 120, title: str | None = None) -> Table:
    """For the terminal, by rich: as much detail as `width` columns take."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    detail = detail_for(ranking, width)
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in table_columns(ranking, detail):
        left = name in ("layout", "standing")
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for row in ranking.settings:
        table.add_row(*map(Text, table_row(row, ranking, detail)), style=_style(row, ranking))
    if ranking.settings and ranking.baselines:
        table.add_section()
    for row in ranking.baselines:
        table.add_row(*map(Text, table_row(row, ranking, detail)))
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
