"""What each method needs on the product of SGLang's default values, in seconds and weight loads, over many seeds.

    python benchmarks/default_grid.py [--seeds 20] [--out benchmarks/results/default_grid.json]

Replays `benchmarks/data/default_grid.json` (fresh launches, `measure_default_grid.py`). A method is done when it has
measured a setting within 1 % of the best at every concurrency, or within the noise between launches where that is more.
A launch costs what it took, and once more 600 s, as on a large model. `at_1_percent` asks for 1 % of the measured means
whatever their noise: the same comparison on a harder table.

- `ours`: the baseline and one setting on a fresh launch (both-ways check), one server that is traced at every topk and
  then switched, a search by surface for each concurrency, the quickest first, and a fresh launch of what is announced.
  All are counted. The rounds timed at one concurrency are known at the next: one model of the step time for all.
- `tpe`, `random`: the same 36 settings. `each`: a search for each concurrency, which measures that alone; `joint`: one
  search for the geometric mean, which measures all. With switching one weight load, and the same baseline, check and
  confirmations as ours; launching, one load a measurement and nothing else.
- `sglang`: the loop of SGLang's own script (scripts/playground/bench_speculative.py, whose filter keeps 47 settings and
  no speculation): concurrency by concurrency, 48 launches each, also of what dies and of what topk 1 makes equal. A
  launch that dies costs what it took to die; it has loaded the weights by then.

Alike for every method: the setting that is checked both ways is measured switched as well, is paid once and is known to
every search; a search for one concurrency begins with what was found at the one before; what is announced is confirmed
by as few launches as possible, one where a setting that was measured is within reach at every concurrency. `search_s`
is what is left without the baseline, the check, the server, the traces and the confirmation: what a sampler can save.
The sampler was chosen on other data (`search_grid.py`), not on this grid.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.grid_bill import WITHIN, Bill, Grid, confirm, frame, sglang
from benchmarks.result_file import write_result
from results.prediction import AcceptLengths, Measured, PredictedSetting, round_of
from search_spaces.config import Triple
from sweeps.surface_candidates import plain_candidates
from sweeps.surface_sampler import Prices, SurfaceSampler

DEAR_S = 600.0
MOST = 10
Sampler = optuna.samplers.BaseSampler


def ours(grid: Grid, seed: int) -> Bill:
    bill = frame(grid)
    bill.seconds += grid.trace_s
    lengths = AcceptLengths(values={("layout", triple): length for triple, length in grid.lengths.items()})
    first = [grid.smallest]
    found: dict[int, list[Triple]] = {}
    seen: dict[int, list[Triple]] = {concurrency: [grid.smallest] for concurrency in grid.concurrencies}
    for concurrency in quickest_first(grid):
        prices = Prices(
            measure_s=grid.cell_s[grid.smallest][concurrency], switch_s=grid.switch_s, launch_s=grid.launch_s
        )
        candidates = plain_candidates([setting_of(triple) for triple in grid.values])
        sampler = SurfaceSampler(lengths, candidates, batch=float(concurrency), prices=prices, seed=seed)
        for other in (other for other in grid.concurrencies if other != concurrency):
            told = [Measured(setting=setting_of(t), throughput=grid.values[t][other]) for t in seen[other]]
            rounds = [round_of(one, lengths, float(other)) for one in told]
            sampler.learn(sample for sample in rounds if sample is not None)
        measured = search(grid, sampler, bill, (concurrency,), first=first, switching=True)
        seen[concurrency] = measured
        found[concurrency] = [measured[-1]]
        first = list(dict.fromkeys([*first, measured[-1]]))
    return confirm(grid, bill, found)


def sampled(grid: Grid, make: Callable[[int], Sampler], seed: int, *, joint: bool, switching: bool) -> Bill:
    """TPE or random, one search for each concurrency or one for all of them."""
    bill = frame(grid) if switching else Bill()
    first = [grid.smallest] if switching else []
    found: dict[int, list[Triple]] = {}
    for concurrencies in [grid.concurrencies] if joint else [(c,) for c in quickest_first(grid)]:
        measured = search(grid, make(seed), bill, concurrencies, first=first, switching=switching)
        found |= {c: [triple for triple in measured if grid.good(triple, c)] for c in concurrencies}
        first = list(dict.fromkeys([*first, measured[-1]]))
    return confirm(grid, bill, found) if switching else bill


def quickest_first(grid: Grid) -> list[int]:
    return sorted(grid.concurrencies, key=lambda concurrency: grid.cell_s[grid.smallest][concurrency])


def search(
    grid: Grid, sampler: Sampler, bill: Bill, concurrencies: Sequence[int], *, first: Sequence[Triple], switching: bool
) -> list[Triple]:
    """Measure until every concurrency has a setting within reach of its best; what was measured, in order. On a
    switched server the smallest setting was paid with the check."""
    open_ones = set(concurrencies)
    measured: list[Triple] = []
    for triple, tell in proposals(grid, sampler, first):
        measured.append(triple)
        if not (switching and triple == grid.smallest):
            bill.measure(grid, triple, concurrencies, switching=switching)
        open_ones -= {concurrency for concurrency in open_ones if grid.good(triple, concurrency)}
        if not open_ones:
            return measured
        tell(math.exp(statistics.mean(math.log(grid.values[triple][c]) for c in concurrencies)))
    raise AssertionError("the whole grid holds the best")


def proposals(
    grid: Grid, sampler: Sampler, first: Sequence[Triple]
) -> Iterator[tuple[Triple, Callable[[float], None]]]:
    """Each runnable setting once. What cannot run or was measured costs nothing, as under `LegalSampler`."""
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for triple in first:
        study.enqueue_trial(parameters(triple))
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
    return dict(plain_candidates([setting_of(triple)])[0].params)


def setting_of(triple: Triple) -> PredictedSetting:
    return PredictedSetting(layout="layout", triple=triple, tp_size=1)


def summary(method: str, bills: Sequence[Bill]) -> dict[str, Any]:
    def over(values: Sequence[float]) -> dict[str, float]:
        return {"mean": round(statistics.mean(values), 1), "worst": round(max(values), 1)}

    return {
        "method": method,
        "measurements": over([bill.measurements for bill in bills]),
        "weight_loads": over([bill.loads for bill in bills]),
        "seconds": over([bill.total_s() for bill in bills]),
        "seconds_at_600_s_a_launch": over([bill.total_s(DEAR_S) for bill in bills]),
        "search_s": over([bill.search_s for bill in bills]),
    }


def compared(grid: Grid, seeds: int) -> list[dict[str, Any]]:
    """One row per method."""
    samplers: dict[str, Callable[[int], Sampler]] = {
        "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True),
        "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    }
    rows = [summary("ours", [ours(grid, seed) for seed in range(seeds)])]
    for name, make in samplers.items():
        for joint in (True, False):
            for switching in (True, False):
                bills = [sampled(grid, make, seed, joint=joint, switching=switching) for seed in range(seeds)]
                how = f"{'joint' if joint else 'each'}, {'switching' if switching else 'launching'}"
                rows.append(summary(f"{name} {how}", bills))
    until, whole = sglang(grid)
    return [*rows, summary("sglang's order, until found", [until]), summary("sglang's order, whole", [whole])]


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asked = arguments()
    grid = Grid.read(asked.grid)
    rows = compared(grid, asked.seeds)
    strict = replace(grid, within=WITHIN)
    content = {
        "settings": len(grid.values),
        "seeds": asked.seeds,
        "noise_between_launches": round(grid.noise, 4),
        "within": round(grid.within, 4),
        "launch_s": round(grid.launch_s, 2),
        "trace_s": round(grid.trace_s, 2),
        "best": {str(c): str(grid.best_at(c)) for c in grid.concurrencies},
        "good": {str(c): [str(t) for t in sorted(grid.values) if grid.good(t, c)] for c in grid.concurrencies},
        "rows": rows,
        "at_1_percent": compared(strict, asked.seeds),
    }
    print(json.dumps(content, indent=1))
    if asked.out:
        write_result(asked.out, command=f"python benchmarks/default_grid.py --seeds {asked.seeds}", content=content)


def arguments() -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--grid", type=Path, default=here / "data" / "default_grid.json")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
