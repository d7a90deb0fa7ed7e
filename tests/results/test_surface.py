"""Surfaces: values and intervals by hand, legality, the survival estimate and where it comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import record, row, spec_row, summary
from test_pool_trace_file import FACTS, traced, write_segment

from results.observations import RequestRow
from results.stats.ratios import ratio_of_sums, ratios_of_sums
from results.store import StudyFolder
from results.study_surface import study_surface
from results.summary import CellSummary
from results.surface import legal_triples, surface_of, survival_points
from results.traces import Trace, append_prompts, write_facts
from search_spaces.config import EngineConfig, Triple


def test_legal_triples() -> None:
    assert [(t.num_steps, t.num_draft_tokens) for t in legal_triples(3, 1, [4])] == [(1, 2), (2, 3), (3, 4)]
    assert [(t.num_steps, t.num_draft_tokens) for t in legal_triples(2, 2)] == [
        *[(1, 2), (1, 3)],
        *[(2, 3), (2, 4), (2, 5), (2, 6), (2, 7)],
    ]
    assert {t.num_draft_tokens for t in legal_triples(8, 8, [8, 64, 65])} == {8, 64, 65}
    assert max(t.num_draft_tokens for t in legal_triples(8, 8)) == 64


def test_points_by_hand(tmp_path: Path) -> None:
    """Prompt x: tokens 100 ... and a pool at each position whose only good candidate is node 0, the right next token.

    `write_segment` puts the position itself into node 0; prompt tokens are 5, so node 0 at root r says 5 + r, which is
    right nowhere: every round accepts nothing. 4 and 2 tokens, the prefill's own one each: 3 + 1 rounds.
    """
    folder = tmp_path / "t"
    write_facts(folder, FACTS)
    write_segment(folder / "1.pools", [(0, 5), (0, 6), (0, 7), (1, 5)], ["x", "y"])
    append_prompts(folder, [traced("x", "1.pools", 4), traced("y", "1.pools", 2), traced("z", "1.pools", 1)])
    points = surface_of(Trace(folder))
    assert len(points) == 7
    assert {(p.rounds, p.accept_length.value, p.histogram, p.method) for p in points} == {(4, 1.5, (4,), "replay")}
    assert points[0].prompt_ids == ("x", "y")
    assert points[0].rounds_by_prompt == (3, 1)
    assert points[0].tokens_by_prompt == (4, 2)
    # two prompts: the resampled values are 8/6, 6/4 and 4/2
    assert (points[0].accept_length.low, points[0].accept_length.high) == (pytest.approx(4 / 3), 2.0)
    with pytest.raises(ValueError, match="not covered"):
        surface_of(Trace(folder), [Triple(num_steps=3, eagle_topk=2, num_draft_tokens=4)])


@given(st.integers(2, 30), st.integers(0, 1000))
def test_many_ratios_are_single_ratios(prompts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, rounds = rng.integers(1, 100, prompts), rng.integers(1, 50, (prompts, 3))
    together = ratios_of_sums(tokens, rounds)
    for i, ratio in enumerate(together):
        alone = ratio_of_sums(tokens.tolist(), rounds[:, i].tolist())
        assert (ratio.value, ratio.low, ratio.high) == pytest.approx((alone.value, alone.low, alone.high), rel=1e-9)


def test_survival_of_a_published_histogram() -> None:
    """(5,1,6) of sglang PR #33518: 43 rounds accepted 11, 14, 11, 4, 0, 3 times 0 to 5 drafts."""
    points = survival_points((2, 4, 5), 1, 5, {"a": (11, 14, 11, 4, 0, 3)})
    lengths = [point.accept_length.value for point in points]
    assert lengths == pytest.approx([1 + 32 / 43, 1 + 50 / 43, 1 + 57 / 43, 1 + 60 / 43, 1 + 63 / 43])
    assert [point.histogram for point in points][:2] == [(11, 32), (11, 14, 18)]
    assert {point.method for point in points} == {"survival"}
    assert survival_points((2, 4, 5), 1, 5, {"a": ()}) == ()


def test_a_study_without_a_traced_chain_gets_estimates(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    study.open_for_write()
    for number, steps in enumerate((3, 5)):
        config = EngineConfig(
            layout=(2, 4, 5), triple=Triple(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1), tp_size=1
        )
        rows = [spec_row("a", (11, 14, 11, 4, 0, 3)[: steps + 1], steps + 1), row(prompt_id="b", error="gone")]
        made = record(trial_id=f"{number}", effective=config, cells=[summary()])
        study.write_trial(made, {(1, None): rows}, {})
    points = study_surface(study)
    assert [point.triple.num_steps for point in points] == [1, 2, 3, 4, 5]
    assert points[4].accept_length.value == pytest.approx(1 + 63 / 43)
    assert points[4].accept_length.count == 1


def test_estimates_rest_on_what_may_be_compared(tmp_path: Path) -> None:
    """The deepest chain that is ranked, its ranked loads, and of these the requests whose counters agree."""
    study = StudyFolder(tmp_path)
    study.open_for_write()
    refused = summary(not_ranked=("warm cache",))

    def keep(trial_id: str, steps: int, cells: dict[int, tuple[CellSummary, list[RequestRow]]]) -> None:
        triple = Triple(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)
        config = EngineConfig(layout=(2, 4, 5), triple=triple, tp_size=1)
        seen = [replace(cell, concurrency=concurrency) for concurrency, (cell, _) in cells.items()]
        made = record(trial_id, config, cells=seen)
        study.write_trial(made, {(concurrency, None): rows for concurrency, (_, rows) in cells.items()}, {})

    good, wrong = (11, 14, 11, 4), (0, 0, 0, 40)
    false_count = spec_row("b", wrong, 4, verify_steps=7)
    keep("0", 3, {1: (summary(), [spec_row("a", good, 4), false_count]), 4: (refused, [spec_row("a", wrong, 4)])})
    keep("1", 5, {1: (refused, [spec_row("a", (0, 0, 0, 0, 0, 40), 6)])})
    points = study_surface(study)
    assert [point.triple.num_steps for point in points] == [1, 2, 3]
    assert points[2].accept_length.value == pytest.approx(1 + (14 + 2 * 11 + 3 * 4) / 40)
    assert points[2].accept_length.count == 1
