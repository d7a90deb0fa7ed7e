"""The measured truth of the default grid, and what a method has to pay on it."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.noise import noise_floor
from search_spaces.config import Triple
from search_spaces.triple_rules import tree_pool

WITHIN = 0.01
SCRIPT = ((0, 1, 3, 5, 7), (0, 1, 2, 4, 8), (0, 2, 4, 8, 16, 32))
"""Steps, topks and draft tokens that SGLang's script tries by default, in its order."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The measured truth. Values and cell seconds are by triple and concurrency, means over launches.

    `dying_s` is what the launch of a setting takes that dies at its first verification, until it is dead. `within` is
    how near the best counts as found.
    """

    concurrencies: tuple[int, ...]
    values: Mapping[Triple, Mapping[int, float]]
    cell_s: Mapping[Triple, Mapping[int, float]]
    baseline_s: float
    launch_s: float
    dying_s: float
    server_launch_s: float
    trace_s: float
    switch_s: float
    lengths: Mapping[Triple, float]
    noise: float
    within: float

    @classmethod
    def read(cls, path: Path) -> Grid:
        content = json.loads(path.read_text())
        if content["tracing"] is None:
            raise SystemExit(f"{path}: is not complete; run measure_default_grid.py again")
        cells = _cells(content["launches"])
        repeats = [[c["throughput"] for c in of] for by in cells.values() for of in by.values() if len(of) > 1]
        alive = [row["launch_s"] for row in content["launches"] if row["kind"] != "dying"]
        dying = [row["launch_s"] for row in content["launches"] if row["kind"] == "dying"]
        noise = noise_floor(repeats).relative
        tracing = content["tracing"]
        return cls(
            concurrencies=tuple(content["concurrencies"]),
            values={t: {c: _mean(of, "throughput") for c, of in by.items()} for t, by in cells.items()},
            cell_s={t: {c: _mean(of, "seconds") for c, of in by.items()} for t, by in cells.items()},
            baseline_s=next(row for row in content["launches"] if row["kind"] == "baseline")["measured_s"],
            launch_s=statistics.mean(alive),
            dying_s=statistics.mean(dying or alive),
            server_launch_s=tracing["launch_s"],
            trace_s=sum(trace["seconds"] for trace in tracing["traces"]),
            switch_s=statistics.mean(tracing["switch_s"]),
            lengths={parse(row["triple"]): row["accept_length"] for row in content["surface"]},
            noise=noise,
            within=max(WITHIN, noise),
        )

    @property
    def smallest(self) -> Triple:
        """The setting that a study measures both ways: the first of the space."""
        return min(self.values)

    def best_at(self, concurrency: int) -> Triple:
        return max(self.values, key=lambda triple: self.values[triple][concurrency])

    def good(self, triple: Triple, concurrency: int) -> bool:
        best = self.values[self.best_at(concurrency)][concurrency]
        return self.values[triple][concurrency] >= (1 - self.within) * best


def _cells(launches: Sequence[Mapping[str, Any]]) -> dict[Triple, dict[int, list[dict[str, Any]]]]:
    cells: dict[Triple, dict[int, list[dict[str, Any]]]] = {}
    for row in launches:
        for one in row["cells"] if row["kind"] == "fresh" else ():
            cells.setdefault(parse(row["triple"]), {}).setdefault(one["concurrency"], []).append(one)
    return cells


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.mean(row[name] for row in rows)


@dataclass
class Bill:
    """What a study has cost: weight loads, and seconds beside them; `search_s` is the part that a sampler can save."""

    seconds: float = 0.0
    search_s: float = 0.0
    measurements: int = 0
    load_s: list[float] = field(default_factory=list)

    @property
    def loads(self) -> int:
        return len(self.load_s)

    def load(self, seconds: float) -> None:
        self.load_s.append(seconds)

    def measure(self, grid: Grid, triple: Triple, concurrencies: Sequence[int], *, switching: bool) -> None:
        """A visit of the search: on the running server, or on a launch of its own."""
        self.measurements += 1
        spent = sum(grid.cell_s[triple][concurrency] for concurrency in concurrencies)
        self.seconds += spent + switching * grid.switch_s
        self.search_s += spent + (grid.switch_s if switching else grid.launch_s)
        if not switching:
            self.load(grid.launch_s)

    def total_s(self, launch_s: float | None = None) -> float:
        return self.seconds + (sum(self.load_s) if launch_s is None else self.loads * launch_s)


def frame(grid: Grid) -> Bill:
    """What every switching study launches and measures beside its search: the baseline; one setting both ways, fresh
    and switched, at all concurrencies; the server that is switched."""
    bill = Bill()
    bill.load(grid.launch_s)
    bill.seconds += grid.baseline_s
    bill.load(grid.launch_s)
    bill.load(grid.server_launch_s)
    bill.seconds += 2 * sum(grid.cell_s[grid.smallest].values()) + grid.switch_s
    return bill


def confirm(grid: Grid, bill: Bill, found: Mapping[int, Collection[Triple]]) -> Bill:
    """A fresh launch of what is announced: of as few settings as are within reach at every concurrency."""
    for winner in fewest(found):
        bill.load(grid.launch_s)
        bill.seconds += sum(grid.cell_s[winner].values())
    return bill


def fewest(found: Mapping[int, Collection[Triple]]) -> tuple[Triple, ...]:
    """The smallest choice that holds one of each concurrency's settings."""
    every = sorted({triple for triples in found.values() for triple in triples})
    for count in range(1, len(found) + 1):
        for chosen in itertools.combinations(every, count):
            if all(set(chosen) & set(triples) for triples in found.values()):
                return chosen
    raise ValueError("a concurrency has no setting")


def sglang(grid: Grid) -> tuple[Bill, Bill]:
    """(until done, the whole loop). The loop is in order: it is through with a concurrency before the next begins."""
    until, whole = Bill(), Bill()
    for number, concurrency in enumerate(grid.concurrencies):
        found = False
        for asked in script_order():
            runs = None if asked is None else runnable(asked)
            last = number == len(grid.concurrencies) - 1
            for bill in [whole] if found and last else [until, whole]:
                bill.measurements += 1
                bill.load(grid.launch_s if asked is None or runs is not None else grid.dying_s)
                if asked is None:
                    bill.seconds += grid.baseline_s / len(grid.concurrencies)
                elif runs is not None:
                    bill.seconds += grid.cell_s[runs][concurrency]
            found = found or (runs is not None and grid.good(runs, concurrency))
    return until, whole


def script_order() -> Iterator[tuple[int, int, int] | None]:
    """The script's 48 settings in its order; None is the one without speculation."""
    for steps, topk, tokens in itertools.product(*SCRIPT):
        if steps * topk + 1 < tokens:
            continue
        if 0 not in (steps, topk, tokens):
            yield steps, topk, tokens
        elif steps + topk + tokens == 0:
            yield None


def runnable(asked: tuple[int, int, int]) -> Triple | None:
    """What SGLang 0.5.23 runs for it; None where the server dies."""
    steps, topk, tokens = asked
    if topk == 1:
        return Triple(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)
    if not steps + 1 <= tokens <= tree_pool(steps, topk) + 1:
        return None
    return Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)


def parse(text: str) -> Triple:
    steps, topk, tokens = (int(part) for part in text.strip("()").split(","))
    return Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
