"""Exact replay: from every position's candidate pool to the verify steps of any smaller setting. Pure numpy.

A pool of s steps holds the pool of every s' <= s as its beginning, because each draft step is appended to those
before it (`organize_draft_results`, srt/speculative/eagle_utils.py). Of that beginning the n - 1 best by cumulative
score become the tree; the target walks it greedily as long as a child is what it says itself, and the round commits one
token more than it accepted. So per position only the nodes on the target's own path matter, and of these only their
rank: a node is in the tree when fewer than n - 1 candidates come before it.

A node whose parent fell out of the tree is out of reach (a tie can do that); the walk stops at its parent anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.topk_ties import TieRule, kept_by_cpu
from search_spaces.config import Triple
from search_spaces.triple_rules import tree_pool

Ints = NDArray[np.int64]
Lengths = NDArray[np.int8]


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Candidate pools of some positions; row i of every array is position i.

    `tokens` and `scores` have `tree_pool(num_steps, eagle_topk)` columns; `parents` has one per group of topk
    candidates, holding the pool index of the group's parent (-1: the root), none for chains and for one step.
    `continuation` has `num_steps` columns: what the target says after the root, -1 where that is not known.
    """

    num_steps: int
    eagle_topk: int
    tokens: NDArray[np.int32]
    scores: NDArray[np.float32]
    parents: NDArray[np.int32]
    continuation: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """`lengths[i, p]`: accepted drafts of setting i at position p. `tied[i]`: positions where a tie decided."""

    lengths: Lengths
    tied: Ints


def accepted_lengths(pools: Pools, settings: Sequence[Triple], ties: TieRule = "lowest_index") -> Accepted:
    """How many drafts each setting would have had accepted at each position.

    Needs memory for a few arrays of the pools' own size: give pools in pieces. ValueError for a setting that the pools
    do not cover or that SGLang cannot run.
    """
    for setting in settings:
        _check_covered(setting, pools)
    path, depth = _target_path(pools)
    lengths = np.zeros((len(settings), len(depth)), dtype=np.int8)
    tied = np.zeros(len(settings), dtype=np.int64)
    if pools.eagle_topk == 1:
        for i, setting in enumerate(settings):
            lengths[i] = np.minimum(depth, setting.num_steps)
        return Accepted(lengths=lengths, tied=tied)
    for steps in sorted({setting.num_steps for setting in settings}):
        ranks = _Ranks.of(pools, path, depth, steps)
        for i, setting in enumerate(settings):
            if setting.num_steps == steps:
                lengths[i], tied[i] = ranks.accepted(setting.num_draft_tokens - 1, ties)
    return Accepted(lengths=lengths, tied=tied)


def _check_covered(setting: Triple, pools: Pools) -> None:
    steps, topk, tokens = setting.num_steps, setting.eagle_topk, setting.num_draft_tokens
    if topk != pools.eagle_topk or steps > pools.num_steps:
        raise ValueError(f"{setting} is not covered by a trace of {pools.num_steps} steps with topk {pools.eagle_topk}")
    if (topk == 1 and tokens != steps + 1) or not steps + 1 <= tokens <= tree_pool(steps, topk) + 1:
        raise ValueError(f"{setting} is not a setting that SGLang can run")


def _target_path(pools: Pools) -> tuple[Ints, Ints]:
    """(path, depth): pool index of the target's path at each depth, shape [num_steps, positions], and its length."""
    positions, topk = len(pools.tokens), pools.eagle_topk
    path = np.zeros((pools.num_steps, positions), dtype=np.int64)
    depth = np.zeros(positions, dtype=np.int64)
    rows = np.arange(positions)
    for step in range(pools.num_steps):
        groups = _children_group(pools, rows, path[step - 1, rows] if step else None, step)
        rows, groups = rows[groups >= 0], groups[groups >= 0]
        children = groups[:, None] * topk + np.arange(topk)
        says_it = pools.tokens[rows[:, None], children] == pools.continuation[rows, step][:, None]
        found = says_it.any(axis=1)
        rows = rows[found]
        path[step, rows] = groups[found] * topk + says_it[found].argmax(axis=1)
        depth[rows] += 1
    return path, depth


def _children_group(pools: Pools, rows: Ints, parent: Ints | None, step: int) -> Ints:
    """Which group of topk candidates holds the parents' children at this step; -1 where a parent was not expanded."""
    if parent is None:
        return np.zeros(len(rows), dtype=np.int64)
    if pools.eagle_topk == 1:
        return np.full(len(rows), step)
    first = 1 + (step - 1) * pools.eagle_topk
    is_parent = pools.parents[rows, first : first + pools.eagle_topk] == parent[:, None]
    return np.where(is_parent.any(axis=1), first + is_parent.argmax(axis=1), -1)


@dataclass(frozen=True, kw_only=True)
class _Ranks:
    """Of each node on the target's path, among the candidates of `steps` steps: how many score higher, how many equal
    (itself included), and how many of the equal ones stand before it. Shape [steps, positions]."""

    pool: NDArray[np.float32]
    path: Ints
    depth: Ints
    higher: NDArray[np.int32]
    equal: NDArray[np.int32]
    earlier: NDArray[np.int32]

    @classmethod
    def of(cls, pools: Pools, path: Ints, depth: Ints, steps: int) -> _Ranks:
        pool = pools.scores[:, : tree_pool(steps, pools.eagle_topk)]
        shape = (steps, len(pool))
        higher, equal, earlier = (np.zeros(shape, dtype=np.int32) for _ in range(3))
        for step in range(steps):
            rows = np.flatnonzero(depth > step)
            nodes = path[step, rows]
            candidates = pool[rows]
            score = candidates[np.arange(len(rows)), nodes][:, None]
            higher[step, rows] = np.count_nonzero(candidates > score, axis=1)
            same = candidates == score
            equal[step, rows] = np.count_nonzero(same, axis=1)
            several = np.flatnonzero(equal[step, rows] > 1)
            before = np.arange(pool.shape[1]) < nodes[several, None]
            earlier[step, rows[several]] = np.count_nonzero(same[several] & before, axis=1)
        return cls(pool=pool, path=path[:steps], depth=depth, higher=higher, equal=equal, earlier=earlier)

    def accepted(self, kept: int, ties: TieRule) -> tuple[Lengths, int]:
        """Accepted drafts per position when `kept` candidates stay, and at how many positions a tie decided."""
        reached = np.arange(len(self.path))[:, None] < self.depth
        lengths = _leading(reached & (self.higher + self.earlier < kept))
        at_most = _leading(reached & (self.higher < kept))
        open_rows = np.flatnonzero(at_most > _leading(reached & (self.higher + self.equal <= kept)))
        if ties == "libstdcxx":
            for row in open_rows:
                stays = kept_by_cpu(self.pool[row].tolist(), kept)
                nodes = self.path[: self.depth[row], row].tolist()
                lengths[row] = next((i for i, node in enumerate(nodes) if node not in stays), len(nodes))
        return lengths, len(open_rows)


def _leading(holds: NDArray[np.bool_]) -> Lengths:
    """How many of the first entries hold without a gap, per column."""
    lengths: Lengths = np.logical_and.accumulate(holds, axis=0).sum(axis=0, dtype=np.int8)
    return lengths


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """`rounds[i, t]`: verify steps of setting i on text t. `histogram[i, t, a]`: those that accepted a drafts."""

    rounds: Ints
    histogram: Ints


def walk(lengths: Lengths, text_lengths: Sequence[int]) -> Rounds:
    """Let every setting run through every text, all at once.

    `lengths` is `Accepted.lengths` over the positions of all texts one after the other: text t has
    `text_lengths[t] - 1` positions (its first token comes from the prefill, its last starts no round). A round at
    output token r with a accepted drafts is followed by one at r + a + 1, as long as tokens are missing. Like SGLang's
    own counters, the last round counts all its accepted drafts, those beyond the end included
    (`_resolve_spec_v2_tokens`, srt/managers/scheduler_components/batch_result_processor.py).
    """
    positions = np.asarray(text_lengths, dtype=np.int64) - 1
    if positions.size and positions.min() < 0:
        raise ValueError("a text has no token")
    if positions.sum() != lengths.shape[1]:
        raise ValueError(f"{lengths.shape[1]} positions for texts that have {positions.sum()}")
    settings, texts, most = len(lengths), len(positions), int(lengths.max(initial=0)) + 1
    offsets = np.cumsum(positions) - positions
    histogram = np.zeros((settings * texts, most), dtype=np.int64)
    flat = lengths.ravel()
    run = np.flatnonzero(np.tile(positions, settings))
    at = np.zeros(len(run), dtype=np.int64)
    base = (np.repeat(np.arange(settings) * lengths.shape[1], texts) + np.tile(offsets, settings))[run]
    end = np.tile(positions, settings)[run]
    while len(run):
        accepted = flat[base + at].astype(np.int64)
        histogram[run, accepted] += 1
        at = at + accepted + 1
        going = at < end
        if not going.all():
            run, at, base, end = run[going], at[going], base[going], end[going]
    per_text = histogram.reshape(settings, texts, most)
    return Rounds(rounds=per_text.sum(axis=2), histogram=per_text)


def pools_of_records(
    records: NDArray[Any], continuation: NDArray[np.int32], *, num_steps: int, eagle_topk: int
) -> Pools:
    """Pools from records of a trace file (a copy in memory); `continuation` as in `Pools`."""
    return Pools(
        num_steps=num_steps,
        eagle_topk=eagle_topk,
        tokens=np.ascontiguousarray(records["tokens"]),
        scores=np.ascontiguousarray(records["scores"]),
        parents=np.ascontiguousarray(records["parents"]),
        continuation=continuation,
    )
