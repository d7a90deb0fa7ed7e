"""How many settings a search measures on the wide space until it is within 1 % of the best at every concurrency.

    python benchmarks/search_grid.py [--seeds 20] [--out benchmarks/results/search_grid.json]

The machines are simulated from measured data (`search_truth.py`). The space: two layouts, num_steps 1 to 8, topk 1, 2,
4, 8, draft tokens 2 to 64, tp 1 and 2, only what SGLang can run. As in a study, a trial measures its setting at every
concurrency on the running server, with noise. Methods only measure legal settings (illegal and repeated proposals cost
nothing) and each once. Counted: settings, launches and seconds until each concurrency has a measured setting within
1 % of its best.

- `ours`, `tpe`: one search after the other, each for one concurrency, and each knowing all that was measured before:
  ours as values at its own concurrency and as rounds at the others, TPE as finished trials of its study.
- `tpe joint`: one search for the geometric mean over the concurrencies.
- `random`: one order of all settings.
- `ours thompson`, `ours upper_bound`: ours with another acquisition than the expected improvement.
- `ours separate`, `tpe separate`: a search per concurrency that measures that alone and knows nothing of the others;
  settings are counted once per concurrency.

A setting's own ways (`OWN_WAYS`) bound what any method can do: where they are more than the 1 % that counts, somebody
who knew the smooth law would still have to try the best few. How the sampler works was chosen on other worlds than
those reported (seeds 0 to 19): seeds from 100 on, and invented machines (`invented_machines.py`). The sizes in
`results/step_prior.py` are not blind to this machine: its round times had been seen when they were set.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.invented_machines import invented
from benchmarks.result_file import write_result
from benchmarks.search_truth import CONCURRENCIES, Truth, World
from results.prediction import Measured, PredictedSetting, round_of
from search_spaces.config import Triple
from sweeps.surface_candidates import plain_candidates
from sweeps.surface_sampler import Acquisition, Prices, SurfaceSampler

OWN_WAYS, NOISE, WITHIN = 0.02, 0.01, 0.01
PROPOSALS = 10
MEASURE_S, SWITCH_S = 30.0, 0.5
LAUNCH_S = (20.0, 600.0)
ACQUISITIONS: tuple[Acquisition, ...] = ("thompson", "upper_bound")
METHODS = (
    "ours",
    *(f"ours {acquisition}" for acquisition in ACQUISITIONS),
    "tpe",
    "tpe joint",
    "random",
    "ours separate",
    "tpe separate",
)


@dataclass
class Visits:
    """What one method has measured so far, in order, and what that took."""

    world: World
    measured: list[PredictedSetting] = field(default_factory=list)
    launches: int = 0
    cells: int = 0
    good: Mapping[int, frozenset[PredictedSetting]] = field(init=False)

    def __post_init__(self) -> None:
        self.good = {concurrency: self.world.good(concurrency, WITHIN) for concurrency in CONCURRENCIES}

    def measure(self, setting: PredictedSetting, concurrencies: Sequence[int]) -> None:
        self.launches += not self.measured or self.measured[-1].tp_size != setting.tp_size
        self.cells += len(concurrencies)
        self.measured.append(setting)

    def found(self, concurrency: int) -> bool:
        return not self.good[concurrency].isdisjoint(self.measured)

    def seconds(self, launch_s: float) -> float:
        switches = len(self.measured) - self.launches
        return self.cells * MEASURE_S + self.launches * launch_s + switches * SWITCH_S


def search(method: str, truth: Truth, world: World, seed: int) -> list[Visits]:
    """Measure until all is found; with separate searches one list of visits each."""
    name, _, how = method.partition(" ")
    if how == "separate":
        separate = [Visits(world) for _ in CONCURRENCIES]
        for concurrency, visits in zip(CONCURRENCIES, separate, strict=True):
            one_search(name, truth, visits, seed, wanted=(concurrency,), measured_at=(concurrency,))
        return separate
    visits = Visits(world)
    if name == "random":
        settings = truth.settings
        for i in np.random.default_rng([seed, 3]).permutation(len(settings)):
            visits.measure(settings[i], CONCURRENCIES)
            if all(visits.found(concurrency) for concurrency in CONCURRENCIES):
                return [visits]
    acquisition = next((one for one in ACQUISITIONS if one == how), "expected_improvement")
    for wanted in [CONCURRENCIES] if how == "joint" else [(c,) for c in CONCURRENCIES]:
        one_search(name, truth, visits, seed, wanted=wanted, measured_at=CONCURRENCIES, acquisition=acquisition)
    return [visits]


def one_search(
    name: str,
    truth: Truth,
    visits: Visits,
    seed: int,
    *,
    wanted: Sequence[int],
    measured_at: Sequence[int],
    acquisition: Acquisition = "expected_improvement",
) -> None:
    """Until every wanted concurrency has a good setting. What was visited before is known from the beginning."""
    sampler = make_sampler(name, truth, wanted, measured_at, seed, acquisition=acquisition)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    others = [concurrency for concurrency in measured_at if concurrency not in wanted]
    for setting in visits.measured:
        study.add_trial(finished(truth, setting, objective(visits.world, setting, wanted)))
        learn(sampler, truth, visits.world, setting, others, before=len(study.trials))
    for setting, tell in proposals(truth, study, visits, seed):
        if all(visits.found(concurrency) for concurrency in wanted):
            return
        visits.measure(setting, measured_at)
        learn(sampler, truth, visits.world, setting, others, before=len(study.trials))
        tell(objective(visits.world, setting, wanted))


def objective(world: World, setting: PredictedSetting, wanted: Sequence[int]) -> float:
    return math.exp(statistics.mean(math.log(world.shown[setting][concurrency]) for concurrency in wanted))


def proposals(
    truth: Truth, study: optuna.Study, visits: Visits, seed: int
) -> Iterator[tuple[PredictedSetting, Callable[[float], None]]]:
    """New legal settings, each with the function to tell its throughput to."""
    legal, seen, refused = set(truth.settings), set(visits.measured), 0
    draw = np.random.default_rng([seed, 5])
    dimensions = dimensions_of(truth)
    while len(seen) < len(legal):
        if refused >= PROPOSALS:  # a sampler that has converged proposes the same again and again
            left = [setting for setting in truth.settings if setting not in seen]
            study.enqueue_trial(dict(plain_candidates([left[draw.integers(len(left))]])[0].params))
        trial = study.ask(dimensions)
        setting = setting_of(trial.params)
        if setting not in legal or setting in seen:
            refused += 1
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        seen.add(setting)
        refused = 0

        def tell(value: float, trial: optuna.Trial = trial) -> None:
            study.tell(trial, value)

        yield setting, tell


def make_sampler(
    name: str, truth: Truth, wanted: Sequence[int], measured_at: Sequence[int], seed: int, *, acquisition: Acquisition
) -> optuna.samplers.BaseSampler:
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed, multivariate=True)
    prices = Prices(measure_s=MEASURE_S * len(measured_at), switch_s=SWITCH_S, launch_s=LAUNCH_S[0])
    candidates = plain_candidates(truth.settings)
    return SurfaceSampler(
        truth.lengths, candidates, batch=float(wanted[0]), prices=prices, acquisition=acquisition, seed=seed
    )


def learn(
    sampler: optuna.samplers.BaseSampler,
    truth: Truth,
    world: World,
    setting: PredictedSetting,
    others: Sequence[int],
    *,
    before: int,
) -> None:
    """What a trial's cells at other concurrencies tell the surface sampler, as in a study by surface."""
    if not isinstance(sampler, SurfaceSampler):
        return
    told = [(Measured(setting=setting, throughput=world.shown[setting][c]), float(c)) for c in others]
    rounds = [round_of(one, truth.lengths, batch) for one, batch in told]
    sampler.learn((sample for sample in rounds if sample is not None), before=before)


def dimensions_of(truth: Truth) -> dict[str, optuna.distributions.BaseDistribution]:
    settings = truth.settings
    choices: dict[str, list[Any]] = {
        "eagle_topk": sorted({s.triple.eagle_topk for s in settings}),
        "num_draft_tokens": sorted({s.triple.num_draft_tokens for s in settings}),
        "layout": sorted({s.layout for s in settings}),
        "tp_size": sorted({s.tp_size for s in settings}),
    }
    steps = [s.triple.num_steps for s in settings]
    return {
        "num_steps": optuna.distributions.IntDistribution(min(steps), max(steps)),
        **{name: optuna.distributions.CategoricalDistribution(values) for name, values in choices.items()},
    }


def setting_of(params: dict[str, Any]) -> PredictedSetting:
    """topk 1 fixes the number of draft tokens, as SGLang does: whatever is suggested stands for the chain."""
    steps, topk = params["num_steps"], params["eagle_topk"]
    tokens = steps + 1 if topk == 1 else params["num_draft_tokens"]
    triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    return PredictedSetting(layout=params["layout"], triple=triple, tp_size=params["tp_size"])


def finished(truth: Truth, setting: PredictedSetting, value: float) -> optuna.trial.FrozenTrial:
    params = dict(plain_candidates([setting])[0].params)
    return optuna.trial.create_trial(params=params, distributions=dimensions_of(truth), value=value)


def summary(method: str, visits: list[list[Visits]]) -> dict[str, Any]:
    """One row; each entry of `visits` is what one seed took."""
    counts = sorted(sum(len(one.measured) for one in of) for of in visits)
    return {
        "method": method,
        "measurements_mean": round(statistics.mean(counts), 2),
        "measurements_median": statistics.median(counts),
        "measurements_most": counts[-1],
        "launches_mean": round(statistics.mean(sum(one.launches for one in of) for of in visits), 2),
        "seconds_mean": {
            f"launch {price:g} s": round(statistics.mean(sum(one.seconds(price) for one in of) for of in visits))
            for price in LAUNCH_S
        },
    }


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asked = arguments()
    truth = Truth.read(asked.truth)
    print(json.dumps(truth.about), flush=True)
    rows = []
    for method in asked.methods:
        visits = []
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            machine = invented(truth, seed) if asked.invented else truth
            world = machine.world(seed, own_ways=OWN_WAYS, noise=asked.noise)
            visits.append(search(method, machine, world, seed))
        rows.append(summary(method, visits))
        print(json.dumps(rows[-1]), flush=True)
    if asked.out:
        content: dict[str, object] = {
            "settings": len(truth.settings),
            "seeds": asked.seeds,
            "within": WITHIN,
            "noise": asked.noise,
            "own_ways": OWN_WAYS,
            "truth": truth.about,
            "rows": rows,
        }
        command = shlex.join(["python", "benchmarks/search_grid.py", *sys.argv[1:]])
        write_result(asked.out, command=command, content=content)


def arguments() -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0, help="seeds from 100 on are for choosing by")
    parser.add_argument("--invented", action="store_true", help="a machine of `invented_machines.py` per seed")
    parser.add_argument("--noise", type=float, default=NOISE)
    parser.add_argument("--truth", type=Path, default=here / "data" / "search_truth.json")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
