"""Machines nobody has measured, to choose a sampler by: laws with numbers drawn at random, on real accept lengths.

A law is not of the sampler's forms: verifying is free up to a knee and grows beyond it with a power, a draft forward
has a knee of its own, and a TP size divides arithmetic and adds communication to every layer that is run. The ranges
hold CPUs, on which each token costs, and accelerators, on which a launch costs and hundreds of tokens are free.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.search_truth import CONCURRENCIES, Truth
from results.prediction import AcceptLengths
from results.step_terms import Floats
from search_spaces.config import Triple


def invented(truth: Truth, seed: int) -> Truth:
    """Another machine, and a draft that is better or worse than the traced one at every depth alike."""
    draw = np.random.default_rng([seed, 13])
    gain = draw.uniform(0.5, 1.3)
    lengths = {at: 1 + (length - 1) * gain for at, length in truth.lengths.values.items()}
    law = {
        "knee": float(np.exp(draw.uniform(np.log(4), np.log(256)))),
        "power": draw.uniform(0.6, 1.1),
        "draft_step": float(np.exp(draw.uniform(np.log(0.03), np.log(0.3)))),
        "draft_knee": float(np.exp(draw.uniform(np.log(4), np.log(128)))),
        "request": float(np.exp(draw.uniform(np.log(0.003), np.log(0.1)))),
        "sort": float(np.exp(draw.uniform(np.log(0.0002), np.log(0.003)))),
        "communication": draw.uniform(0.0, 0.8),
        "tp_gain": draw.uniform(0.5, 1.0),
    }
    log_times = {tp_size: np.log(round_times(truth.triples, law, tp_size)) for tp_size in truth.log_times}
    return Truth(
        lengths=AcceptLengths(values=lengths), triples=truth.triples, log_times=log_times, about={"invented": law}
    )


def round_times(triples: Sequence[Triple], law: dict[str, float], tp_size: int) -> Floats:
    """[triples, concurrencies]; one verification of one token takes 1."""
    s, k, n = (
        np.array([[getattr(triple, name)] for triple in triples], dtype=np.float64)
        for name in ("num_steps", "eagle_topk", "num_draft_tokens")
    )
    b = np.array([CONCURRENCIES], dtype=np.float64)
    share = 1.0 if tp_size == 1 else law["tp_gain"] ** np.log2(tp_size)
    added = 0.0 if tp_size == 1 else law["communication"]
    verify = share * (1 + (b * n / law["knee"]) ** (2 * law["power"])) ** 0.5
    draft = law["draft_step"] * s * share * (1 + (b * k / law["draft_knee"]) ** 2) ** 0.5
    times: Floats = (
        verify + draft + added * (1 + law["draft_step"] * s) + b * (law["request"] + law["sort"] * k * k * s)
    )
    return times
