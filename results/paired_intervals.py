"""The half-width over prompts of a ratio between two settings, paired where their request rows are at hand.

Paired by prompt, the ratio of two settings varies because one of them suits some prompts better, and because the same
request takes another time in another launch. The second part is in the difference between launches already
(`results/launch_noise.py`); it is measured on configurations that were launched twice, and taken out here, so that it
does not count twice. What is left is what other prompts would change, and where fewer prompts are compared than the
repeats have, the chance of these few beyond that of the repeats.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from results.cell_acceptance import acceptance_pairs
from results.cells import throughput_pairs
from results.measured_settings import RowsOf
from results.noise import log_half_width
from results.objective import Metric
from results.request_table import CellKey
from results.stats.ratios import Pair, overlapping_ratio
from results.summary import Estimate

_PAIRED: dict[str, str] = {
    "output_throughput": "throughput",
    "steady_throughput": "throughput",
    "accept_length": "acceptance",
}
MIN_SHARED_PROMPTS = 5
_MOST_REPEATS = 12
"""So many pairs of launches suffice to know how much the time of a request varies."""


class PairedIntervals:
    """Reads each trial's rows at most once a load. Without rows, intervals are combined as if independent (wider).

    `repeats` are the trial ids of every configuration that was launched more than once.
    """

    def __init__(self, rows_of: RowsOf | None, repeats: Sequence[Sequence[str]] = ()) -> None:
        self._rows_of = rows_of
        self._repeats = [pair for ids in repeats for pair in itertools.pairwise(ids)][:_MOST_REPEATS]
        self._pairs: dict[tuple[str, str], dict[CellKey, dict[str, Pair]]] = {}
        self._chances: dict[tuple[str, CellKey], tuple[float, float]] = {}

    def log_half_width(
        self,
        metric: Metric,
        load: CellKey,
        first: tuple[Sequence[str], Estimate],
        second: tuple[Sequence[str], Estimate],
    ) -> float:
        """Half-width on the scale of logarithms for `second` / `first`, each the ids of its launches and an estimate.

        A prompt's requests are summed over the launches: another launch draws no other prompts, but evens out what was
        chance in the time of one request.
        """
        kind = _PAIRED.get(metric)
        if kind is not None and self._rows_of is not None:
            one, other = (_summed([self._of(it, kind).get(load, {}) for it in ids]) for ids, _ in (first, second))
            if len(one.keys() & other.keys()) >= MIN_SHARED_PROMPTS:
                return self._half_width(kind, load, one, other, 1 / len(first[0]) + 1 / len(second[0]))
        return math.hypot(log_half_width(first[1]), log_half_width(second[1]))

    def shared_values(self, metric: Metric, load: CellKey, trial_ids: Sequence[str]) -> tuple[float, ...] | None:
        """A value of each trial that is proportional to the metric over the prompts that all of them measured.

        None without rows, or for a metric or prompts that cannot be compared like that.
        """
        kind = _PAIRED.get(metric)
        if kind is None or self._rows_of is None:
            return None
        trials = [self._of(trial_id, kind).get(load, {}) for trial_id in trial_ids]
        shared = set.intersection(*(set(pairs) for pairs in trials))
        if len(shared) < MIN_SHARED_PROMPTS:
            return None
        sums = [[sum(pairs[key][i] for key in shared) for i in (0, 1)] for pairs in trials]
        return tuple(above / below for above, below in sums) if all(a > 0 and b > 0 for a, b in sums) else None

    def shared_half_width(self, metric: Metric, load: CellKey, first: str, second: str) -> float | None:
        """That of two launches' `shared_values`, one by the other; None where there are none."""
        kind = _PAIRED.get(metric)
        if kind is None or self.shared_values(metric, load, [first, second]) is None:
            return None
        one, other = (self._of(it, kind).get(load, {}) for it in (first, second))
        shared = one.keys() & other.keys()
        return self._half_width(kind, load, {key: one[key] for key in shared}, {key: other[key] for key in shared}, 2.0)

    def _half_width(
        self, kind: str, load: CellKey, one: Mapping[str, Pair], other: Mapping[str, Pair], launches: float
    ) -> float:
        """Of their ratio, without the chance that is in the difference between launches; `launches` is the sum of
        1 / launches of both."""
        request, launch = self._chance(kind, load)
        chance = min(request / len(one.keys() & other.keys()), launch) * launches
        return math.sqrt(max(0.0, log_half_width(overlapping_ratio(one, other)) ** 2 - chance))

    def _chance(self, kind: str, load: CellKey) -> tuple[float, float]:
        """The squares of the half-widths that chance in the time of a request gives one launch of one prompt, and one
        launch of as many prompts as the repeats have (their mean, as the noise floor pools their squares)."""
        if (kind, load) not in self._chances:
            request, launch = [], []
            for pair in self._repeats:
                one, other = (self._of(it, kind).get(load, {}) for it in pair)
                shared = len(one.keys() & other.keys())
                if shared >= MIN_SHARED_PROMPTS:
                    launch.append(log_half_width(overlapping_ratio(one, other)) ** 2 / 2)
                    request.append(launch[-1] * shared)
            count = max(1, len(launch))
            self._chances[kind, load] = sum(request) / count, sum(launch) / count
        return self._chances[kind, load]

    def _of(self, trial_id: str, kind: str) -> Mapping[CellKey, dict[str, Pair]]:
        if (trial_id, kind) not in self._pairs and self._rows_of is not None:
            cells = self._rows_of(trial_id)
            pairs = acceptance_pairs if kind == "acceptance" else throughput_pairs
            self._pairs[(trial_id, kind)] = {load: pairs(rows) for load, rows in cells.items()}
        return self._pairs[(trial_id, kind)]


def _summed(launches: Sequence[Mapping[str, Pair]]) -> dict[str, Pair]:
    sums: dict[str, Pair] = {}
    for pairs in launches:
        for key, (above, below) in pairs.items():
            known = sums.get(key, (0.0, 0.0))
            sums[key] = (known[0] + above, known[1] + below)
    return sums
