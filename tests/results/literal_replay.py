"""Speculative decoding as SGLang does it, one position and one node at a time: slow, and easy to compare with it."""

from __future__ import annotations

import numpy as np
import torch

from results.pool_replay import Pools


def literal_tree(pool: Pools, row: int, steps: int, tokens: int) -> list[tuple[int, int]]:
    """(parent's slot, token) of slots 1..n-1; -1 for a parent that is not in the tree. As `organize_draft_results`."""
    k = pool.eagle_topk
    nodes = k + (steps - 1) * k * k
    scores = torch.from_numpy(pool.scores[row : row + 1, :nodes].copy())
    index = torch.sort(torch.topk(scores, tokens - 1, dim=-1).indices).values[0].tolist()
    slots = {node: slot for slot, node in enumerate(index, start=1)}
    tree = []
    for node in index:
        group = node // k
        parent = 0 if group == 0 else slots.get(int(pool.parents[row, group]), -1)
        tree.append((parent, int(pool.tokens[row, node])))
    return tree


def literal_accepted(pool: Pools, row: int, steps: int, tokens: int) -> int:
    """Walk the tree as `verify_tree_greedy` does."""
    if pool.eagle_topk == 1:
        tree = [(slot, int(token)) for slot, token in enumerate(pool.tokens[row, :steps])]
    else:
        tree = literal_tree(pool, row, steps, tokens)
    at, accepted = 0, 0
    while accepted < steps:
        says = int(pool.continuation[row, accepted])
        found = [slot for slot, (parent, token) in enumerate(tree, start=1) if parent == at and token == says]
        if not found:
            break
        at, accepted = found[0], accepted + 1
    return accepted


def literal_rounds(accepted: list[int], length: int) -> list[int]:
    """Accepted drafts of every round on a text of `length` output tokens, the first of them from the prefill."""
    produced, rounds = 1, []
    while produced < length:
        rounds.append(accepted[produced - 1])
        produced += rounds[-1] + 1
    return rounds


def random_pools(
    rng: np.random.Generator, positions: int, steps: int, topk: int, *, levels: int | None, vocabulary: int
) -> Pools:
    """Pools as a draft makes them: children of the topk best of each level; `levels` distinct probabilities (ties)."""
    nodes = topk + (steps - 1) * topk * topk
    tokens = np.zeros((positions, nodes), dtype=np.int32)
    scores = np.zeros((positions, nodes), dtype=np.float32)
    parents = np.zeros((positions, 0 if steps == 1 or topk == 1 else 1 + topk * (steps - 1)), dtype=np.int32)
    for p in range(positions):
        distinct = np.concatenate([rng.permutation(vocabulary)[:topk] for _ in range(nodes // topk)])
        tokens[p] = distinct
        if topk == 1:
            continue
        level, level_at = _probabilities(rng, topk, levels), 0
        scores[p, :topk] = level
        if steps > 1:
            parents[p, 0] = -1
        for step in range(1, steps):
            if step == 1:
                best, cumulative = np.arange(topk), level
            else:
                best = np.argsort(-level, kind="stable")[:topk] + level_at
                cumulative = scores[p, best]
            parents[p, 1 + (step - 1) * topk : 1 + step * topk] = best
            rows = [c * _probabilities(rng, topk, levels) for c in cumulative]
            level, level_at = np.concatenate(rows).astype(np.float32), topk + (step - 1) * topk * topk
            scores[p, level_at : level_at + topk * topk] = level
    continuation = rng.integers(0, vocabulary, (positions, steps)).astype(np.int32)
    return Pools(
        num_steps=steps,
        eagle_topk=topk,
        tokens=tokens,
        scores=scores,
        parents=parents,
        continuation=continuation,
    )


def _probabilities(rng: np.random.Generator, count: int, levels: int | None) -> np.ndarray:
    if levels is None:
        return np.sort(rng.random(count).astype(np.float32))[::-1]
    return np.sort(rng.integers(0, levels + 1, count).astype(np.float32) / np.float32(levels))[::-1]
