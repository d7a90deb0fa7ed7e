"""Ratios of two launches: what chance gives a request counts once, whether the pair has all prompts or a few."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from result_builders import row

from results.noise import noise_floor
from results.observations import RequestRow
from results.paired_intervals import PairedIntervals
from results.request_table import CellKey

LOAD: CellKey = (1, None)
PROMPTS = 64
CHANCE = 0.1
"""The relative deviation of the time of one request."""


def launch(rng: Generator, prompts: int, chance: float = CHANCE) -> dict[CellKey, Sequence[RequestRow]]:
    """One launch of a server that is as fast as every other: only the time of a request varies."""
    times = np.exp(chance * rng.standard_normal(prompts)).tolist()
    return {LOAD: [row(prompt_id=f"p{i}", finished_s=time) for i, time in enumerate(times)]}


def throughput(rows: Mapping[CellKey, Sequence[RequestRow]]) -> float:
    return sum(one.completion_tokens for one in rows[LOAD]) / sum(one.finished_s for one in rows[LOAD])


def is_beyond(rng: Generator, prompts: int) -> bool:
    """Whether two launches of one server, over so many prompts, differ by more than prompts and launches allow for.

    The floor is measured on four repeats of all prompts.
    """
    trials = {f"r{i}": launch(rng, PROMPTS) for i in range(8)} | {f"t{i}": launch(rng, prompts) for i in range(2)}
    repeats = [[f"r{i}", f"r{i + 1}"] for i in range(0, 8, 2)]
    intervals = PairedIntervals(trials.__getitem__, repeats)
    floor = noise_floor([[throughput(trials[it]) for it in pair] for pair in repeats])
    scatter = intervals.shared_half_width("output_throughput", LOAD, "t0", "t1")
    assert scatter is not None
    distance = math.log(throughput(trials["t1"]) / throughput(trials["t0"]))
    return abs(distance) > math.hypot(floor.relative, scatter)


@pytest.mark.parametrize("prompts", [16, 32, PROMPTS])
def test_two_launches_of_one_server_are_rarely_beyond_noise(prompts: int) -> None:
    """A cell that stopped early has more chance in it than a repeat of all prompts."""
    rng = default_rng(11)
    assert np.mean([is_beyond(rng, prompts) for _ in range(100)]) <= 0.08


def test_no_more_chance_is_taken_out_than_the_repeats_have() -> None:
    rng = default_rng(5)
    repeats = {f"r{i}": launch(rng, PROMPTS) for i in range(8)}
    pairs = [[f"r{i}", f"r{i + 1}"] for i in range(0, 8, 2)]
    early = {f"t{i}": launch(rng, 16) for i in range(2)}
    whole = {f"w{i}": launch(rng, PROMPTS) for i in range(2)}
    trials = repeats | early | whole

    def width(first: str, second: str, known: Sequence[Sequence[str]]) -> float:
        found = PairedIntervals(trials.__getitem__, known).shared_half_width("output_throughput", LOAD, first, second)
        assert found is not None
        return found

    taken_out = [width(*pair, ()) ** 2 - width(*pair, pairs) ** 2 for pair in (("t0", "t1"), ("w0", "w1"))]
    of_repeats = np.mean([width(*pair, ()) ** 2 for pair in pairs])
    assert taken_out[0] == pytest.approx(of_repeats)
    assert taken_out[1] <= of_repeats * (1 + 1e-9)
