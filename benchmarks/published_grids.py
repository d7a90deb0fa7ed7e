"""Published tables as simulators: how many measurements until a setting within 1 % of a table's best is found.

    python benchmarks/published_grids.py [--seeds 20] [--out benchmarks/results/published_grids.json]

Each file of `benchmarks/data/published` holds figures as somebody published them, with the source and what had to be
filled in. A search is made for each load (batch size or concurrency) of each table. It measures without noise, since a
table has one number per setting, and each setting once.

- `ours`: the surface sampler, with the accept lengths that a user would have there: those published for each setting,
  else the survival estimate from one chain's positions. Without any the sampler is its fallback, TPE.
- `tpe`, `random`: the same settings.

The tables are small (4 to 24 settings). On a curve of 4 or 6 settings there is little to gain: the second guess is
often within 1 % for every method.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.result_file import write_result
from results.prediction import AcceptLengths, PredictedSetting
from search_spaces.config import Triple
from sweeps.surface_candidates import plain_candidates
from sweeps.surface_sampler import SurfaceSampler

WITHIN = 0.01
DATA = Path(__file__).resolve().parent / "data" / "published"
NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")

Sampler = optuna.samplers.BaseSampler


@dataclass(frozen=True, kw_only=True)
class Table:
    """One published table at one load: throughputs, and accept lengths where published or estimated."""

    name: str
    load: int
    throughputs: Mapping[PredictedSetting, float]
    lengths: AcceptLengths

    def good(self, setting: PredictedSetting) -> bool:
        return self.throughputs[setting] >= (1 - WITHIN) * max(self.throughputs.values())


def read_tables(path: Path) -> list[Table]:
    """The tables of one file, one for each load. A setting's `group` takes the place of the layout."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = content["settings"]
    settings = [
        PredictedSetting(layout=row["group"], triple=Triple(**{name: row[name] for name in NUMBERS}), tp_size=1)
        for row in rows
    ]
    known = [(s, row["accept_length"]) for s, row in zip(settings, rows, strict=True) if row["accept_length"]]
    lengths = AcceptLengths(values={(s.layout, s.triple): length for s, length in known})
    return [
        Table(
            name=path.stem,
            load=load,
            throughputs={s: row["throughput"][i] for s, row in zip(settings, rows, strict=True)},
            lengths=lengths,
        )
        for i, load in enumerate(content["loads"])
    ]


def ours(table: Table, seed: int) -> Sampler:
    candidates = plain_candidates(table.throughputs)
    return SurfaceSampler(table.lengths, candidates, batch=float(table.load), seed=seed)


def tpe(table: Table, seed: int) -> Sampler:
    return optuna.samplers.TPESampler(seed=seed, multivariate=True)


def random(table: Table, seed: int) -> Sampler:
    return optuna.samplers.RandomSampler(seed=seed)


METHODS: Mapping[str, Callable[[Table, int], Sampler]] = {"ours": ours, "tpe": tpe, "random": random}


def measurements(table: Table, sampler: Sampler, seed: int) -> int:
    """How many settings are measured until a good one. Proposing again what is measured costs nothing."""
    study = optuna.create_study(direction="maximize", sampler=sampler)
    draw = np.random.default_rng([seed, 5])
    seen: set[PredictedSetting] = set()
    refused = 0
    while True:
        if refused > 20 * len(table.throughputs):
            left = [s for s in table.throughputs if s not in seen]
            study.enqueue_trial(dict(plain_candidates([left[draw.integers(len(left))]])[0].params))
        trial = study.ask()
        setting = suggested(trial, table)
        if setting in seen:
            refused += 1
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        refused = 0
        seen.add(setting)
        if table.good(setting):
            return len(seen)
        study.tell(trial, table.throughputs[setting])


def suggested(trial: optuna.Trial, table: Table) -> PredictedSetting:
    """The number of draft tokens follows from steps and topk in every table, so it is no dimension for any method."""
    triples = [setting.triple for setting in table.throughputs]
    steps = trial.suggest_int("num_steps", min(t.num_steps for t in triples), max(t.num_steps for t in triples))
    topk = trial.suggest_categorical("eagle_topk", sorted({t.eagle_topk for t in triples}))
    layout = trial.suggest_categorical("layout", sorted({s.layout for s in table.throughputs}))
    triple = next(t for t in triples if (t.num_steps, t.eagle_topk) == (steps, topk))
    trial.suggest_int("num_draft_tokens", triple.num_draft_tokens, triple.num_draft_tokens)
    trial.suggest_int("tp_size", 1, 1)
    return PredictedSetting(layout=layout, triple=triple, tp_size=1)


def row(table: Table, method: str, seeds: int) -> dict[str, Any]:
    counts = [measurements(table, METHODS[method](table, seed), seed) for seed in range(seeds)]
    return {
        "table": table.name,
        "load": table.load,
        "settings": len(table.throughputs),
        "good": sum(table.good(setting) for setting in table.throughputs),
        "predicted": len(table.lengths.values) > 0,
        "method": method,
        "measurements_mean": round(statistics.mean(counts), 2),
        "measurements_most": max(counts),
    }


def by_table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over a table's loads, one entry per table."""
    names = list(dict.fromkeys(row["table"] for row in rows))
    return [
        {"table": name}
        | {
            method: round(
                statistics.mean(r["measurements_mean"] for r in rows if (r["table"], r["method"]) == (name, method)), 2
            )
            for method in METHODS
        }
        for name in names
    ]


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asked = arguments()
    tables = [table for path in sorted(DATA.glob("*.json")) for table in read_tables(path)]
    rows = [row(table, method, asked.seeds) for table in tables for method in METHODS]
    for entry in by_table(rows):
        print(json.dumps(entry), flush=True)
    if asked.out:
        command = f"python benchmarks/published_grids.py --seeds {asked.seeds}"
        content = {"seeds": asked.seeds, "within": WITHIN, "by_table": by_table(rows), "rows": rows}
        write_result(asked.out, command=command, content=content)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
