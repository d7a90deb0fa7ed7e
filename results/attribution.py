"""How much of a gap each of layout, config and parallelism costs: Shapley shares with intervals, three-valued.

v(S) is the accept length with the groups in S taken from the reference and the others from the suspect, on the same
prompts at temperature 0. The share of a group is its Shapley value over the corners (L. S. Shapley, "A Value for
n-Person Games", 1953), so the shares sum to v(all) - v(none) exactly. Interactions are Harsanyi dividends: what a set
of groups gives beyond what its subsets give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Literal, get_args

import numpy as np

from results.stats.bootstrap import Floats, bootstrap
from results.stats.effects import Verdict, effect_verdict
from results.stats.ratios import Pair
from results.summary import Estimate

Group = Literal["config", "layout", "parallelism"]
GROUPS: tuple[Group, ...] = get_args(Group)
Corner = frozenset[Group]
"""The groups that a corner takes from the reference; empty is the suspect."""

DEFAULT_MARGIN = 0.02


def _ordered(groups: Iterable[Group]) -> tuple[Group, ...]:
    wanted = set(groups)
    return tuple(group for group in GROUPS if group in wanted)


def corners(differing: Iterable[Group] = GROUPS) -> tuple[Corner, ...]:
    """All corners over the groups that differ, smallest first: 2^k of them."""
    groups = _ordered(differing)
    return tuple(frozenset(part) for size in range(len(groups) + 1) for part in combinations(groups, size))


def shapley_weights(groups: Iterable[Group], group: Group) -> dict[Corner, float]:
    """Weight of each corner's value in a group's share; they sum to 0."""
    players = _ordered(groups)
    weights: dict[Corner, float] = {}
    for without in corners(player for player in players if player != group):
        weight = factorial(len(without)) * factorial(len(players) - len(without) - 1) / factorial(len(players))
        weights[without | {group}] = weight
        weights[without] = -weight
    return weights


def dividend_weights(part: Corner) -> dict[Corner, float]:
    """Weight of each corner's value in the interaction of a set of groups (its Harsanyi dividend)."""
    return {corner: (-1.0) ** (len(part) - len(corner)) for corner in corners(part)}


def weighted(values: Mapping[Corner, float], weights: Mapping[Corner, float]) -> float:
    return sum(weight * values[corner] for corner, weight in weights.items())


def shapley_values(values: Mapping[Corner, float], groups: Iterable[Group] = GROUPS) -> dict[Group, float]:
    """Shares from plain corner values, over the groups that differ. KeyError when a corner is missing."""
    players = _ordered(groups)
    return {group: weighted(values, shapley_weights(players, group)) for group in players}


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The gap between suspect and reference, split. All numbers are accept lengths.

    `margin` is absolute. A group in which suspect and reference do not differ has share 0 exactly, and verdict no.
    `interactions` holds the sets of two or three groups.
    """

    gap: Estimate
    suspect_value: float
    reference_value: float
    shares: Mapping[Group, Estimate]
    interactions: Mapping[Corner, Estimate]
    verdicts: Mapping[Group, Verdict]
    margin: float
    prompts: int


def attribute(
    measured: Mapping[Corner, Mapping[str, Pair]],
    *,
    differing: Iterable[Group] = GROUPS,
    margin: float = DEFAULT_MARGIN,
    repeat_noise: float = 0.0,
    seed: int = 0,
) -> Attribution:
    """Split the gap from per-prompt (tokens, verify steps) of every corner over the groups that differ.

    Only prompts measured in all corners count, drawn together (paired bootstrap). `margin` is relative to the larger
    of the two ends; the measured relative noise between repeats takes its place when it is larger. ValueError when a
    corner is missing or no prompt is shared.
    """
    players = _ordered(differing)
    needed = corners(players)
    missing = [corner for corner in needed if corner not in measured]
    if missing:
        raise ValueError(f"corner {_named(missing[0])} is not measured")
    prompts = sorted(set.intersection(*(set(measured[corner]) for corner in needed)))
    if not prompts:
        raise ValueError("the corners share no prompt")
    columns = np.asarray(
        [[number for corner in needed for number in measured[corner][prompt]] for prompt in prompts], dtype=np.float64
    )
    places = {corner: 2 * i for i, corner in enumerate(needed)}

    def estimate(weights: Mapping[Corner, float]) -> Estimate:
        def statistic(sums: Floats) -> Floats:
            total = np.zeros(len(sums))
            for corner, weight in weights.items():
                at = places[corner]
                total += weight * (sums[:, at] / sums[:, at + 1])
            return total

        return bootstrap(statistic, columns, seed=seed)

    everything, nothing = frozenset(players), frozenset[Group]()
    ends = columns.sum(axis=0)
    values = {corner: float(ends[at] / ends[at + 1]) for corner, at in places.items()}
    absolute = max(margin, repeat_noise) * max(values[everything], values[nothing])
    zero = Estimate(value=0.0, low=0.0, high=0.0, count=len(prompts))
    shares = {g: estimate(shapley_weights(players, g)) if g in players else zero for g in GROUPS}
    return Attribution(
        gap=estimate({everything: 1.0, nothing: -1.0}) if players else zero,
        suspect_value=values[nothing],
        reference_value=values[everything],
        shares=shares,
        interactions={part: estimate(dividend_weights(part)) for part in needed if len(part) > 1},
        verdicts={g: effect_verdict(shares[g], absolute) if g in players else _same() for g in GROUPS},
        margin=absolute,
        prompts=len(prompts),
    )


def _same() -> Verdict:
    return Verdict(answer="no", more_prompts=None, reason="suspect and reference do not differ in it")


def _named(corner: Corner) -> str:
    return "{" + ", ".join(sorted(corner)) + "}" if corner else "{} (the suspect)"
