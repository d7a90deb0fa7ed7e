"""The simulated machines of the search benchmark: what a setting's throughput is, and what a measurement of it shows.

Accept lengths are exact surfaces of real traces. Round times are measured ones (`data/search_truth.json`, made by
`measure_search_truth.py`): per TP size a smooth interpolation of the logarithm of the quickest pass, by SciPy's radial
basis functions in octaves of num_steps, topk, draft tokens and requests, smoothed as much as leaves the least error on
settings that were left out. It knows nothing of the sampler's additive forms. The quickest pass, since neighbours on
the machine make a pass slower and never quicker: passes 0 and 1 ran beside other work and scatter by 12 % and more,
pass 2 ran with that work frozen.

On this come each setting's own ways, drawn once per seed and concurrency, and the noise of a measurement. The data only
bound both together: by the error on left-out settings, which holds the error of the interpolation as well. A layout
only says which hidden states the draft is given, so layouts share round times and own ways.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.interpolate import RBFInterpolator

from results.prediction import AcceptLengths, PredictedSetting
from results.step_terms import Floats
from search_spaces.config import Triple

CONCURRENCIES = (1, 4, 8)
NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")
KERNEL, DEGREE = "thin_plate_spline", 1
SMOOTHINGS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
REQUESTS = np.log2([float(c) for c in CONCURRENCIES])


@dataclass(frozen=True, kw_only=True)
class RoundTimes:
    """Logarithms of measured round times at one TP size, and the interpolation through them.

    `octaves` are of num_steps, topk, draft tokens and requests, [points, 4]. `scatter` is the standard deviation of one
    pass against another one's, of a single pass, without the slowest ones (from the median absolute difference).
    """

    octaves: Floats
    logs: Floats
    scatter: float

    @classmethod
    def read(cls, rows: Sequence[Mapping[str, float]]) -> RoundTimes:
        passes: dict[tuple[float, ...], list[Mapping[str, float]]] = {}
        for row in rows:
            passes.setdefault((*(row[name] for name in NUMBERS), row["concurrency"]), []).append(row)
        points = [(*at[:3], float(np.mean([row["batch"] for row in of]))) for at, of in passes.items()]
        times = [[row["step_s"] for row in of] for of in passes.values()]
        apart = np.abs([math.log(of[1] / of[0]) for of in times if len(of) > 1])
        scatter = float(1.4826 * np.median(apart) / math.sqrt(2)) if len(apart) else 0.0
        return cls(octaves=np.log2(np.array(points)), logs=np.log([min(of) for of in times]), scatter=scatter)

    def interpolation(self, smoothing: float, without: Floats | None = None) -> RBFInterpolator:
        """`without` leaves out all points of one setting: its first three octaves."""
        kept = np.ones(len(self.logs), dtype=bool)
        if without is not None:
            kept = (self.octaves[:, :3] != without).any(axis=1)
        return RBFInterpolator(self.octaves[kept], self.logs[kept], kernel=KERNEL, degree=DEGREE, smoothing=smoothing)

    def errors_left_out(self, smoothing: float) -> Floats:
        """Logarithms of predicted over measured times of settings that the interpolation did not see."""
        errors: list[float] = []
        for setting in np.unique(self.octaves[:, :3], axis=0):
            left = (self.octaves[:, :3] == setting).all(axis=1)
            predicted = self.interpolation(smoothing, without=setting)(self.octaves[left])
            errors += (predicted - self.logs[left]).tolist()
        return np.array(errors)

    def smoothing(self) -> float:
        """The one with the least error on settings left out."""
        return min(SMOOTHINGS, key=lambda smoothing: float(np.mean(self.errors_left_out(smoothing) ** 2)))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is known of the real machine: accept lengths by (layout, triple), and logarithms of round times without the
    settings' own ways by TP size, [triples, concurrencies]."""

    lengths: AcceptLengths
    triples: tuple[Triple, ...]
    log_times: Mapping[int, Floats]
    about: Mapping[str, object]

    @classmethod
    def read(cls, path: Path) -> Truth:
        content = json.loads(path.read_text(encoding="utf-8"))
        values = {}
        for row in content["surface"]:
            triple = Triple(**{name: row[name] for name in NUMBERS})
            values[row["layout"], triple] = sum(row["tokens_by_prompt"]) / sum(row["rounds_by_prompt"])
        triples = tuple(sorted({triple for _, triple in values}))
        log_times, about = {}, {}
        for tp_size in sorted({row["tp_size"] for row in content["step_times"]}):
            times = RoundTimes.read([row for row in content["step_times"] if row["tp_size"] == tp_size])
            smoothing = times.smoothing()
            log_times[tp_size] = interpolated(times.interpolation(smoothing), triples)
            about[f"tp {tp_size}"] = {
                "smoothing": smoothing,
                "error_left_out": round(float(np.sqrt(np.mean(times.errors_left_out(smoothing) ** 2))), 4),
                "scatter_between_passes": round(times.scatter, 4),
                "quicker_with_more": quicker_with_more(triples, log_times[tp_size]),
            }
        return cls(lengths=AcceptLengths(values=values), triples=triples, log_times=log_times, about=about)

    @property
    def settings(self) -> tuple[PredictedSetting, ...]:
        return tuple(
            PredictedSetting(layout=layout, triple=triple, tp_size=tp_size)
            for layout, triple in self.lengths.values
            for tp_size in self.log_times
        )

    def world(self, seed: int, *, own_ways: float, noise: float) -> World:
        """One simulated machine, and what measuring each setting once would show there: noise included."""
        draw = np.random.default_rng([seed, 11])
        times = {
            tp_size: np.exp(logs + own_ways * draw.standard_normal(logs.shape))
            for tp_size, logs in self.log_times.items()
        }
        number = {triple: i for i, triple in enumerate(self.triples)}
        true, shown = {}, {}
        for setting in self.settings:
            length = self.lengths.values[setting.layout, setting.triple]
            of = np.array(CONCURRENCIES) * length / times[setting.tp_size][number[setting.triple]]
            true[setting] = dict(zip(CONCURRENCIES, of.tolist(), strict=True))
            scattered = of * np.exp(noise * draw.standard_normal(len(of)))
            shown[setting] = dict(zip(CONCURRENCIES, scattered.tolist(), strict=True))
        return World(true=true, shown=shown)


@dataclass(frozen=True, kw_only=True)
class World:
    """Throughputs by setting and concurrency: true ones, and what a measurement shows."""

    true: Mapping[PredictedSetting, Mapping[int, float]]
    shown: Mapping[PredictedSetting, Mapping[int, float]]

    def good(self, concurrency: int, within: float) -> frozenset[PredictedSetting]:
        """The settings within reach of the best."""
        best = max(of[concurrency] for of in self.true.values())
        return frozenset(s for s, of in self.true.items() if of[concurrency] >= (1 - within) * best)


def interpolated(times: RBFInterpolator, triples: Sequence[Triple]) -> Floats:
    """[triples, concurrencies]"""
    numbers = np.log2([[t.num_steps, t.eagle_topk, t.num_draft_tokens] for t in triples])
    points = np.array([[*of, requests] for of in numbers for requests in REQUESTS])
    logs: Floats = times(points).reshape(len(triples), len(REQUESTS))
    return logs


def quicker_with_more(triples: Sequence[Triple], logs: Floats) -> float:
    """The part of neighbours (one more step of one number, the others alike) whose greater one is over 1 % quicker."""
    found = []
    for name in NUMBERS:
        others = [other for other in NUMBERS if other != name]
        alike: dict[tuple[int, ...], list[int]] = {}
        for i, triple in enumerate(triples):
            alike.setdefault(tuple(getattr(triple, other) for other in others), []).append(i)
        for row in alike.values():
            row.sort(key=lambda i: getattr(triples[i], name))
            found += [bool(quicker) for a, b in itertools.pairwise(row) for quicker in logs[b] < logs[a] - 0.01]
    return round(sum(found) / len(found), 4)
