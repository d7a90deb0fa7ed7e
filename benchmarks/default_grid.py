"""What each method needs on the product of SGLang's default values, in seconds and weight loads, over many seeds.

    python benchmarks/default_grid.py [--seeds 20] [--out benchmarks/results/default_grid.json]

Replays `benchmarks/data/default_grid.json` (fresh launches, `measure_default_grid.py`). A method is done when it has
measured a setting within 1 % of the best at every concurrency, or within the noise between launches where that is more.
A launch costs what it took, and once more 600 s, as on a large model.

- `ours`: the baseline and one setting on fresh launches (both-ways check), one server that is traced at every topk and
  then switched, a search by surface for each concurrency in turn, and a fresh launch of each winner. All are counted.
- `tpe`, `random`: the same 36 settings. `each`: a search for each concurrency in turn, which measures that alone;
  `joint`: one search for the geometric mean, which measures all. With switching one weight load, and the same baseline,
  check and confirmations as ours; launching, one load a measurement and nothing else.
- `sglang`: the loop of SGLang's own script (scripts/playground/bench_speculative.py, whose filter keeps 47 settings and
  no speculation): concurrency by concurrency, 48 launches each, also of what dies and of what topk 1 makes equal.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import machine
from results.noise import noise_floor
from results.prediction import AcceptLengths, PredictedSetting
from search_spaces.config import Triple
from search_spaces.triple_rules import tree_pool
from sweeps.surface_sampler import Prices, SurfaceSampler, plain_candidates

WITHIN = 0.01
DEAR_S = 600.0
MOST = 200
SCRIPT = ((0, 1, 3, 5, 7), (0, 1, 2, 4, 8), (0, 2, 4, 8, 16, 32))
"""Steps, topks and draft tokens that the script tries by default, in its order."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The measured truth. Values and cell seconds are by triple and concurrency, means over launches."""

    concurrencies: tuple[int, ...]
    values: Mapping[Triple, Mapping[int, float]]
    cell_s: Mapping[Triple, Mapping[int, float]]
    baseline_s: float
    launch_s: float
    server_launch_s: float
    trace_s: float
    switch_s: float
    lengths: Mapping[Triple, float]
    noise: float

    @classmethod
    def read(cls, path: Path) -> Grid:
        content = json.loads(path.read_text())
        if content["tracing"] is None:
            raise SystemExit(f"{path}: is not complete; run measure_default_grid.py again")
        fresh = [row for row in content["launches"] if row["kind"] == "fresh"]
        cells: dict[Triple, dict[int, list[dict[str, Any]]]] = {}
        for row in fresh:
            for one in row["cells"]:
                by_load = cells.setdefault(parse(row["triple"]), {})
                by_load.setdefault(one["concurrency"], []).append(one)
        repeats = [[c["throughput"] for c in of] for by in cells.values() for of in by.values() if len(of) > 1]
        baseline = next(row for row in content["launches"] if row["kind"] == "baseline")
        tracing = content["tracing"]
        return cls(
            concurrencies=tuple(content["concurrencies"]),
            values={t: {c: mean_of(of, "throughput") for c, of in by.items()} for t, by in cells.items()},
            cell_s={t: {c: mean_of(of, "seconds") for c, of in by.items()} for t, by in cells.items()},
            baseline_s=baseline["measured_s"],
            launch_s=statistics.mean(row["launch_s"] for row in content["launches"]),
            server_launch_s=tracing["launch_s"],
            trace_s=sum(trace["seconds"] for trace in tracing["traces"]),
            switch_s=statistics.mean(tracing["switch_s"]),
            lengths={parse(row["triple"]): row["accept_length"] for row in content["surface"]},
            noise=noise_floor(repeats).relative,
        )

    @property
    def within(self) -> float:
        return max(WITHIN, self.noise)

    def good(self, triple: Triple, concurrency: int) -> bool:
        best = max(values[concurrency] for values in self.values.values())
        return self.values[triple][concurrency] >= (1 - self.within) * best


@dataclass
class Bill:
    """What a search has cost: weight loads, and seconds beside them."""

    loads: int = 0
    seconds: float = 0.0
    measurements: int = 0
    load_s: list[float] = field(default_factory=list)

    def load(self, seconds: float) -> None:
        self.loads += 1
        self.load_s.append(seconds)

    def measure(self, grid: Grid, triple: Triple, concurrencies: Sequence[int]) -> None:
        self.measurements += 1
        self.seconds += sum(grid.cell_s[triple][concurrency] for concurrency in concurrencies)

    def total_s(self, launch_s: float | None = None) -> float:
        return self.seconds + (sum(self.load_s) if launch_s is None else self.loads * launch_s)


def ours(grid: Grid, seed: int) -> Bill:
    bill, first = frame(grid), smallest(grid)
    bill.seconds += grid.trace_s
    winners = set()
    for concurrency in grid.concurrencies:
        lengths = AcceptLengths(values={("layout", triple): length for triple, length in grid.lengths.items()})
        prices = Prices(measure_s=grid.cell_s[first][concurrency], switch_s=grid.switch_s, launch_s=grid.launch_s)
        settings = [PredictedSetting(layout="layout", triple=triple, tp_size=1) for triple in grid.values]
        sampler = SurfaceSampler(
            lengths, plain_candidates(settings), batch=float(concurrency), prices=prices, seed=seed
        )
        winners.add(search(grid, sampler, bill, (concurrency,), first=first, switching=True))
    return confirmed(grid, bill, winners)


def sampled(grid: Grid, make: Callable[[int], optuna.samplers.BaseSampler], seed: int, *, joint: bool,
            switching: bool) -> Bill:  # fmt: skip
    """TPE or random, one search for each concurrency or one for all of them."""
    bill = frame(grid) if switching else Bill()
    winners: set[Triple] = set()
    for concurrencies in [grid.concurrencies] if joint else [(c,) for c in grid.concurrencies]:
        search(grid, make(seed), bill, concurrencies, first=None, switching=switching)
        winners |= {best_at(grid, concurrency) for concurrency in concurrencies}
    return confirmed(grid, bill, winners) if switching else bill


def frame(grid: Grid) -> Bill:
    """What a switching study launches beside its search: the baseline, the check, the server that is switched."""
    bill = Bill()
    bill.load(grid.launch_s)
    bill.seconds += grid.baseline_s
    bill.load(grid.launch_s)
    bill.seconds += sum(grid.cell_s[smallest(grid)].values())
    bill.load(grid.server_launch_s)
    return bill


def confirmed(grid: Grid, bill: Bill, winners: set[Triple]) -> Bill:
    for winner in sorted(winners):
        bill.load(grid.launch_s)
        bill.seconds += sum(grid.cell_s[winner].values())
    return bill


def search(
    grid: Grid,
    sampler: optuna.samplers.BaseSampler,
    bill: Bill,
    concurrencies: Sequence[int],
    *,
    first: Triple | None,
    switching: bool,
) -> Triple:
    """Measure until every concurrency has a setting within reach of its best; returns the last measured one."""
    open_ones = set(concurrencies)
    for triple, tell in proposals(grid, sampler, first):
        bill.measure(grid, triple, concurrencies)
        if switching:
            bill.seconds += grid.switch_s
        else:
            bill.load(grid.launch_s)
        open_ones -= {concurrency for concurrency in open_ones if grid.good(triple, concurrency)}
        if not open_ones:
            return triple
        tell(math.exp(statistics.mean(math.log(grid.values[triple][c]) for c in concurrencies)))
    raise AssertionError("the whole grid holds the best")


def proposals(
    grid: Grid, sampler: optuna.samplers.BaseSampler, first: Triple | None
) -> Iterator[tuple[Triple, Callable[[float], None]]]:
    """Each runnable setting once. What cannot run or was measured costs nothing, as under `LegalSampler`."""
    study = optuna.create_study(direction="maximize", sampler=sampler)
    if first is not None:
        study.enqueue_trial(parameters(first))
    seen: set[Triple] = set()
    draw = np.random.default_rng(len(grid.values))
    refused = 0
    while len(seen) < len(grid.values):
        if refused >= MOST:
            left = sorted(set(grid.values) - seen)
            study.enqueue_trial(parameters(left[draw.integers(len(left))]))
        trial = study.ask()
        triple = suggested(trial)
        if triple not in grid.values or triple in seen:
            refused += 1
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        refused = 0
        seen.add(triple)

        def tell(value: float, trial: optuna.Trial = trial) -> None:
            study.tell(trial, value)

        yield triple, tell


def suggested(trial: optuna.Trial) -> Triple:
    """topk 1 fixes the number of draft tokens, as SGLang does."""
    steps = trial.suggest_categorical("num_steps", [1, 3, 5, 7])
    topk = trial.suggest_categorical("eagle_topk", [1, 2, 4, 8])
    tokens = trial.suggest_categorical("num_draft_tokens", [2, 4, 6, 8, 16, 32])
    trial.suggest_categorical("layout", ["layout"])
    trial.suggest_categorical("tp_size", [1])
    return Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=steps + 1 if topk == 1 else tokens)


def parameters(triple: Triple) -> dict[str, Any]:
    return dict(plain_candidates([PredictedSetting(layout="layout", triple=triple, tp_size=1)])[0].params)


def sglang(grid: Grid) -> tuple[Bill, Bill]:
    """(until done, the whole loop). The loop is in order: it is through with a concurrency before the next begins."""
    until, whole = Bill(), Bill()
    for number, concurrency in enumerate(grid.concurrencies):
        found = False
        for asked in script_order():
            runs = None if asked is None else runnable(asked)
            counted = [whole] if found and number == len(grid.concurrencies) - 1 else [until, whole]
            for bill in counted:
                bill.load(grid.launch_s)
                bill.measurements += 1
                if asked is None:
                    bill.seconds += grid.baseline_s / len(grid.concurrencies)
                elif runs is not None:
                    bill.seconds += grid.cell_s[runs][concurrency]
            found = found or (runs is not None and grid.good(runs, concurrency))
    return until, whole


def script_order() -> Iterator[tuple[int, int, int] | None]:
    """The script's 48 settings in its order; None is the one without speculation."""
    for steps in SCRIPT[0]:
        for topk in SCRIPT[1]:
            for tokens in SCRIPT[2]:
                if steps * topk + 1 < tokens:
                    continue
                if 0 in (steps, topk, tokens):
                    if steps + topk + tokens == 0:
                        yield None
                    continue
                yield steps, topk, tokens


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


def mean_of(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.mean(row[name] for row in rows)


def smallest(grid: Grid) -> Triple:
    return min(grid.values)


def best_at(grid: Grid, concurrency: int) -> Triple:
    return max(grid.values, key=lambda triple: grid.values[triple][concurrency])


def summary(method: str, bills: Sequence[Bill]) -> dict[str, Any]:
    def over(values: Sequence[float]) -> dict[str, float]:
        return {"mean": round(statistics.mean(values), 1), "worst": round(max(values), 1)}

    return {
        "method": method,
        "measurements": over([bill.measurements for bill in bills]),
        "weight_loads": over([bill.loads for bill in bills]),
        "seconds": over([bill.total_s() for bill in bills]),
        "seconds_at_600_s_a_launch": over([bill.total_s(DEAR_S) for bill in bills]),
    }


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asked = arguments()
    grid = Grid.read(asked.grid)
    seeds = range(asked.seeds)
    samplers: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
        "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True),
        "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    }
    rows = [summary("ours", [ours(grid, seed) for seed in seeds])]
    for name, make in samplers.items():
        for joint in (True, False):
            for switching in (True, False):
                bills = [sampled(grid, make, seed, joint=joint, switching=switching) for seed in seeds]
                how = f"{'joint' if joint else 'each'}, {'switching' if switching else 'launching'}"
                rows.append(summary(f"{name} {how}", bills))
    until, whole = sglang(grid)
    rows += [summary("sglang's order, until found", [until]), summary("sglang's order, whole", [whole])]
    content = {
        "command": f"python benchmarks/default_grid.py --seeds {asked.seeds}",
        "machine": machine("optuna", "numpy"),
        "settings": len(grid.values),
        "seeds": asked.seeds,
        "noise_between_launches": round(grid.noise, 4),
        "within": round(grid.within, 4),
        "launch_s": round(grid.launch_s, 2),
        "best": {str(c): str(best_at(grid, c)) for c in grid.concurrencies},
        "rows": rows,
    }
    for row in rows:
        print(json.dumps(row), flush=True)
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(content, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--grid", type=Path, default=here / "data" / "default_grid.json")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
