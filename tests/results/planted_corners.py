"""Corners with planted causes: rows whose acceptance follows from layout, triple and a fault at tp above 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from result_builders import cell, record, spec_row

from results.attribution import Corner
from results.cells import summarise_cell
from results.corners import MeasuredCorner, corner_configs, measured_corner
from results.feed import FeedReport, Kind, SlotMatch
from results.isolation import IsolationCase
from results.observations import RequestRow
from results.probed_feed import ProbedFeed
from results.records import TrialRecord
from search_spaces.config import EngineConfig, Taps, Triple
from search_spaces.model_facts import TargetFacts

TRAINED: Taps = (0, 3, 7)
OTHER: Taps = (2, 4, 5)
PROMPTS, STEPS = 40, 30
TARGET = TargetFacts(
    path=Path("target"),
    architecture="LlamaForCausalLM",
    model_type="llama",
    config={},
    num_layers=8,
    hidden_size=64,
    vocab_size=512,
)


def server(layout: Taps = TRAINED, triple: tuple[int, int, int] = (5, 1, 6), tp: int = 1) -> EngineConfig:
    steps, topk, tokens = triple
    return EngineConfig(
        layout=layout, triple=Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens), tp_size=tp
    )


def rows_of(config: EngineConfig, *, fault: float = 1.0) -> list[RequestRow]:
    """Drafts are accepted with 0.85 on the trained layout and 0.4 on another, times `fault` above tp 1."""
    assert config.triple is not None
    rate = 0.85 if config.layout == TRAINED else 0.4
    if config.tp_size > 1:
        rate *= fault
    rng = np.random.default_rng(3)
    rows = []
    for prompt in range(PROMPTS):
        own = min(0.97, max(0.02, rate + rng.normal(0, 0.03)))
        draws = rng.random((STEPS, 16))[:, : config.triple.num_steps] < own
        accepted = np.minimum.accumulate(draws, axis=1).sum(axis=1)
        histogram = np.bincount(accepted, minlength=config.triple.num_steps + 1).tolist()
        rows.append(spec_row(f"p{prompt}", histogram, config.triple.num_draft_tokens))
    return rows


def trial(config: EngineConfig, trial_id: str, *, fault: float = 1.0) -> tuple[TrialRecord, Sequence[RequestRow]]:
    rows = rows_of(config, fault=fault)
    summary = summarise_cell(cell(rows), config.triple)
    return record(trial_id, config, cells=[replace(summary, not_ranked=())]), rows


def corners_between(
    suspect: EngineConfig, reference: EngineConfig, *, fault: float = 1.0, without: Sequence[Corner] = ()
) -> dict[Corner, MeasuredCorner]:
    found = {}
    for number, (corner, config) in enumerate(corner_configs(suspect, reference).items()):
        made, rows = trial(config, f"t{number}-a1", fault=fault)
        found[corner] = measured_corner(
            config,
            [] if corner in without else [made],
            lambda _, rows=rows: {(1, None): rows},
            workload_id="w" * 16,
            concurrency=1,
            problem="illegal: a rule says so" if corner in without else "",
        )
    return found


def case(
    suspect: EngineConfig,
    reference: EngineConfig,
    *,
    fault: float = 1.0,
    without: Sequence[Corner] = (),
    chosen: EngineConfig | None = None,
    feeds: tuple[ProbedFeed, ...] = (),
) -> IsolationCase:
    return IsolationCase(
        study="demo",
        target=TARGET,
        suspect=suspect,
        reference=reference,
        chosen=chosen or reference,
        chosen_as="the study's choice",
        corners=corners_between(suspect, reference, fault=fault, without=without),
        feeds=feeds,
    )


def probed(config: EngineConfig, kind: Kind = "tap", *, equal: bool = True) -> ProbedFeed:
    """A probe that saw the configuration's own layout, each slot as `kind`."""
    matches = tuple(
        SlotMatch(slot=slot, rank=rank, kind=kind, tap=tap, error=1e-6, next_error=0.3)
        for rank in range(config.tp_size)
        for slot, tap in enumerate(config.layout or ())
    )
    report = FeedReport(matches=matches, ranks=config.tp_size, equal_ranks=equal, tokens=24)
    return ProbedFeed(config=config, report=report)
