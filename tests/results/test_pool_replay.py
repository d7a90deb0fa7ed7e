"""The replay against a literal one, with ties and without; its counting at the end of a text; its speed."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_replay import literal_accepted, literal_rounds, random_pools

from results.pool_replay import Pools, accepted_lengths, walk
from results.topk_ties import kept_by_cpu
from search_spaces.config import Triple
from search_spaces.triple_rules import tree_pool


def triples(steps: int, topk: int, most: int = 64) -> list[Triple]:
    """Every legal (s', n) under a trace of `steps`."""
    found = []
    for s in range(1, steps + 1):
        tokens = [s + 1] if topk == 1 else range(s + 1, min(tree_pool(s, topk) + 1, most) + 1)
        found += [Triple(num_steps=s, eagle_topk=topk, num_draft_tokens=n) for n in tokens]
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 4),
    topk=st.sampled_from([1, 2, 3, 4]),
    levels=st.sampled_from([None, 1, 2, 5]),
)
def test_every_setting_as_literal(seed: int, steps: int, topk: int, levels: int | None) -> None:
    """Ties included: the literal replay asks torch itself, on the CPU."""
    rng = np.random.default_rng(seed)
    pools = random_pools(rng, 6, steps, topk, levels=levels, vocabulary=topk + 1)
    wanted = triples(steps, topk)
    accepted = accepted_lengths(pools, wanted, ties="libstdcxx").lengths
    literal = [[literal_accepted(pools, p, t.num_steps, t.num_draft_tokens) for p in range(6)] for t in wanted]
    assert accepted.tolist() == literal


def test_larger_pools_as_literal() -> None:
    rng = np.random.default_rng(5)
    pools = random_pools(rng, 12, 7, 8, levels=3, vocabulary=9)
    wanted = [Triple(num_steps=s, eagle_topk=8, num_draft_tokens=n) for s in (1, 3, 7) for n in (8, 9, 32, 64) if n > s]
    wanted = [t for t in wanted if t.num_draft_tokens <= tree_pool(t.num_steps, 8) + 1]
    result = accepted_lengths(pools, wanted, ties="libstdcxx")
    literal = [[literal_accepted(pools, p, t.num_steps, t.num_draft_tokens) for p in range(12)] for t in wanted]
    assert result.lengths.tolist() == literal
    assert result.tied.sum() > 0
    assert result.lengths.max() > 1


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_ties_as_torch_breaks_them(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=300))
    count = data.draw(st.integers(1, min(64, len(values))))
    scores = torch.tensor([values], dtype=torch.float32) / 4
    expected = frozenset(torch.topk(scores, count, dim=-1).indices[0].tolist())
    assert kept_by_cpu(scores[0].tolist(), count) == expected


def one_position(scores: list[float], continuation: list[int]) -> Pools:
    """topk 2, two steps: nodes 0 and 1, then the children of 0 (2, 3) and of 1 (4, 5); token = 10 + index."""
    return Pools(
        num_steps=2,
        eagle_topk=2,
        tokens=np.arange(10, 16, dtype=np.int32)[None],
        scores=np.array([scores], dtype=np.float32),
        parents=np.array([[-1, 0, 1]], dtype=np.int32),
        continuation=np.array([continuation], dtype=np.int32),
    )


@pytest.mark.parametrize(
    ("steps", "tokens", "accepted"),
    [(1, 2, 0), (1, 3, 1), (2, 3, 0), (2, 4, 1), (2, 5, 1), (2, 6, 2), (2, 7, 2)],
)
def test_by_hand(steps: int, tokens: int, accepted: int) -> None:
    """Ranks: 0 (.6), 2 (.4), 1 (.35), 3 (.2), 4 (.19), 5 (.16); the target says 11, then 14."""
    pools = one_position([0.6, 0.35, 0.4, 0.2, 0.19, 0.16], [11, 14])
    setting = Triple(num_steps=steps, eagle_topk=2, num_draft_tokens=tokens)
    assert accepted_lengths(pools, [setting]).lengths.tolist() == [[accepted]]


def test_ties_fall_to_the_lowest_index_on_cuda() -> None:
    """Three candidates at .4 for the last two places: 0 and 1 stay, 2 goes."""
    pools = one_position([0.4, 0.4, 0.4, 0.1, 0.1, 0.1], [11, -1])
    setting = Triple(num_steps=2, eagle_topk=2, num_draft_tokens=3)
    result = accepted_lengths(pools, [setting], ties="lowest_index")
    assert (result.lengths.tolist(), result.tied.tolist()) == ([[1]], [1])
    out = one_position([0.4, 0.4, 0.4, 0.1, 0.1, 0.1], [10, 12])
    assert accepted_lengths(out, [setting], ties="lowest_index").lengths.tolist() == [[1]]


@pytest.mark.parametrize("bad", [(3, 2, 4), (2, 4, 8), (2, 2, 2), (2, 2, 8), (1, 2, 4)])
def test_settings_that_are_not_covered(bad: tuple[int, int, int]) -> None:
    pools = one_position([0.6, 0.35, 0.4, 0.2, 0.19, 0.16], [11, 14])
    setting = Triple(num_steps=bad[0], eagle_topk=bad[1], num_draft_tokens=bad[2])
    with pytest.raises(ValueError, match=r"not covered|not a setting"):
        accepted_lengths(pools, [setting])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_walk_as_literal(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    count = data.draw(st.integers(1, 3))
    cells = sum(lengths) - len(lengths)
    accepted = np.array(
        [data.draw(st.lists(st.integers(0, 4), min_size=cells, max_size=cells)) for _ in range(count)], dtype=np.int8
    ).reshape(count, cells)
    result = walk(accepted, lengths)
    for i in range(count):
        at = 0
        for t, length in enumerate(lengths):
            rounds = literal_rounds(accepted[i, at : at + length - 1].tolist(), length)
            assert result.rounds[i, t] == len(rounds)
            assert [rounds.count(a) for a in range(result.histogram.shape[2])] == result.histogram[i, t].tolist()
            at += length - 1


def test_the_last_round_counts_beyond_the_end() -> None:
    """Three tokens: the prefill's, then one round that accepts 4 of which one fits (with the bonus it would be 5)."""
    result = walk(np.array([[4, 0]], dtype=np.int8), [3])
    assert result.rounds.tolist() == [[1]]
    assert result.histogram[0, 0].tolist() == [0, 0, 0, 0, 1]


def test_walk_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="5 positions for texts that have 4"):
        walk(np.zeros((1, 5), dtype=np.int8), [5])
    with pytest.raises(ValueError, match="no token"):
        walk(np.zeros((1, 0), dtype=np.int8), [0])


def test_fast_enough_for_a_tenth() -> None:
    """10,000 positions x 200 settings of a pool of 264 nodes: the whole (ten times as many) has 60 s."""
    rng = np.random.default_rng(0)
    pools = random_pools(rng, 250, 5, 8, levels=None, vocabulary=12)
    many = Pools(
        num_steps=5,
        eagle_topk=8,
        tokens=np.tile(pools.tokens, (40, 1)),
        scores=np.tile(pools.scores, (40, 1)),
        parents=np.tile(pools.parents, (40, 1)),
        continuation=np.tile(pools.continuation, (40, 1)),
    )
    wanted = triples(5, 8)[:200]
    started = time.process_time()
    accepted = accepted_lengths(many, wanted, ties="libstdcxx")
    walk(accepted.lengths, [501] * 20)
    assert time.process_time() - started < 6
