"""The CPU stand-ins against worked examples and slow, obvious versions of the same."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.engines.cpu_kernels import STAND_INS, stand_in_paths
from actors.engines.cpu_kernels.for_sgl_kernel.sgl_kernel import attention, cache, tree

NONE = -1


def test_a_tree_of_two_requests() -> None:
    """topk 2, two steps: pool 0, 1 | 2, 3 below 0 | 4, 5 below 1. The requests keep different fours."""
    size, requests = 5, 2
    parents = torch.tensor([[NONE, 0, 1]] * requests)
    kept = torch.tensor([[0, 1, 3, 4], [0, 1, 2, 3]])
    mask = torch.ones(requests * size * size, dtype=torch.bool)
    positions = torch.zeros(requests * size, dtype=torch.long)
    index, child, sibling = (torch.full((requests, size), NONE) for _ in range(3))
    lengths = torch.tensor([10, 20])
    tree.build_tree_kernel_efficient_cpu(
        parents, kept, lengths, mask, positions, index, child, sibling, 2, 2, size, tree.QLEN_ONLY
    )
    assert index.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert positions.tolist() == [10, 11, 11, 12, 12, 20, 21, 21, 22, 22]
    assert child.tolist() == [[1, 3, 4, NONE, NONE], [1, 3, NONE, NONE, NONE]]
    assert sibling.tolist() == [[NONE, 2, NONE, NONE, NONE], [NONE, 2, NONE, 4, NONE]]
    visible = [[row.nonzero().flatten().tolist() for row in request] for request in mask.view(requests, size, size)]
    assert visible[0] == [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]
    assert visible[1] == [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 4]]


def test_other_masks_are_refused() -> None:
    empty = torch.zeros(0, dtype=torch.long)
    with pytest.raises(NotImplementedError):
        tree.build_tree_kernel_efficient_cpu(empty, empty, empty, empty, empty, empty, empty, empty, 1, 1, 1, 0)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """(parent slots, tokens, the target's prediction at each slot) of a tree of up to 12 nodes over 4 tokens."""
    size = draw(st.integers(2, 12))
    parents = [NONE] + [draw(st.integers(0, slot - 1)) for slot in range(1, size)]
    tokens = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    predictions = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    return parents, tokens, predictions


def walk(parents: list[int], tokens: list[int], predictions: list[int], depth: int) -> list[int]:
    """The slots a greedy verification accepts, root first: the first child that is what the target says."""
    path = [0]
    while len(path) <= depth:
        fitting = [
            slot for slot, parent in enumerate(parents) if parent == path[-1] and tokens[slot] == predictions[path[-1]]
        ]
        if not fitting:
            break
        path.append(fitting[0])
    return path


@given(st.lists(trees(), min_size=1, max_size=3), st.integers(1, 5))
@settings(deadline=None)
def test_verification_is_the_greedy_walk_in_every_request(
    batch: list[tuple[list[int], list[int], list[int]]], depth: int
) -> None:
    size = max(len(parents) for parents, _, _ in batch)
    requests = len(batch)
    index = torch.arange(requests * size).view(requests, size)
    child, sibling = torch.full((requests, size), NONE), torch.full((requests, size), NONE)
    candidates, target = (
        torch.zeros((requests, size), dtype=torch.long),
        torch.zeros((requests, size), dtype=torch.long),
    )
    for row, (parents, tokens, predictions) in enumerate(batch):
        for slot in range(len(parents) - 1, 0, -1):
            sibling[row, slot] = child[row, parents[slot]]
            child[row, parents[slot]] = slot
        candidates[row, : len(tokens)] = torch.tensor(tokens)
        target[row, : len(predictions)] = torch.tensor(predictions)
    accepted = torch.full((requests, depth + 1), NONE)
    count, predicts = torch.zeros(requests, dtype=torch.long), torch.full((requests * size,), 99)
    tree.verify_tree_greedy_cpu(predicts, accepted, count, candidates, index, child, sibling, target)
    for row, (parents, tokens, predictions) in enumerate(batch):
        path = walk(parents, tokens, predictions, depth)
        assert count[row] == len(path) - 1
        assert accepted[row, : len(path)].tolist() == [row * size + slot for slot in path]
        assert [int(predicts[row * size + slot]) for slot in path] == [predictions[slot] for slot in path]


def slow_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: list[list[int]], cap: float
) -> torch.Tensor:
    out = torch.zeros_like(q)
    group = q.shape[1] // k.shape[1]
    for token in range(q.shape[0]):
        for head in range(q.shape[1]):
            logits = [float(q[token, head] @ k[at, head // group]) * 0.5 for at in visible[token]]
            logits = [cap * math.tanh(x / cap) if cap else x for x in logits]
            weights = torch.tensor(logits).softmax(0)
            out[token, head] = sum(w * v[at, head // group] for w, at in zip(weights, visible[token], strict=True))
    return out


@pytest.mark.parametrize("cap", [0.0, 5.0])
@pytest.mark.parametrize("window", [-1, 2])
def test_extending_two_requests_equals_the_slow_version(cap: float, window: int) -> None:
    torch.manual_seed(0)
    k_buffer, v_buffer = torch.randn(32, 2, 8), torch.randn(32, 2, 8)
    slots = torch.randperm(32)[:16].view(2, 8)
    lengths, new = torch.tensor([5, 7]), torch.tensor([2, 3])
    q = torch.randn(5, 4, 8)
    out = torch.zeros_like(q)
    attention.extend_attention_cpu(
        q, q, q, out, k_buffer, v_buffer, 1.0, 1.0, slots, torch.tensor([1, 0]), lengths, new, torch.tensor([0, 2]), 3,
        0.5, cap, False, window, None, None, None, True,
    )  # fmt: skip
    for row, length, count, start in ((1, 5, 2, 0), (0, 7, 3, 2)):
        visible = [
            [at for at in range(length) if at <= position and (window < 0 or at > position - window)]
            for position in range(length - count, length)
        ]
        own = slots[row, :length]
        wanted = slow_attention(q[start : start + count], k_buffer[own], v_buffer[own], visible, cap)
        torch.testing.assert_close(out[start : start + count], wanted)


def test_extending_along_a_tree_sees_the_prefix_and_the_ancestors() -> None:
    torch.manual_seed(1)
    k_buffer, v_buffer = torch.randn(16, 2, 8), torch.randn(16, 2, 8)
    slots, q = torch.arange(16).view(1, 16), torch.randn(3, 4, 8)
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    out = torch.zeros_like(q)
    attention.extend_attention_cpu(
        q, q, q, out, k_buffer, v_buffer, 1.0, 1.0, slots, torch.tensor([0]), torch.tensor([7]), torch.tensor([3]),
        torch.tensor([0]), 3, 0.5, 0.0, False, -1, None, None, mask.flatten(), True,
    )  # fmt: skip
    visible = [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 6]]
    torch.testing.assert_close(out, slow_attention(q, k_buffer[:7], v_buffer[:7], visible, 0.0))


def test_decoding_stores_the_new_token_and_attends_to_all() -> None:
    torch.manual_seed(2)
    k_buffer, v_buffer = torch.randn(16, 2, 8), torch.randn(16, 2, 8)
    slots = torch.tensor([[3, 1, 4, 0], [9, 2, 6, 5]])
    q, key, value = torch.randn(2, 4, 8), torch.randn(2, 2, 8), torch.randn(2, 2, 8)
    out = torch.zeros_like(q)
    attention.decode_attention_cpu(
        q, k_buffer, v_buffer, 1.0, 1.0, out, key, value, torch.tensor([4, 5]), torch.zeros(0), slots,
        torch.tensor([0, 1]), torch.tensor([3, 4]), 0.5, 0.0, False, -1, None, None,
    )  # fmt: skip
    torch.testing.assert_close(k_buffer[torch.tensor([4, 5])], key)
    for row, length in ((0, 3), (1, 4)):
        own = slots[row, :length]
        wanted = slow_attention(q[row : row + 1], k_buffer[own], v_buffer[own], [list(range(length))], 0.0)
        torch.testing.assert_close(out[row : row + 1], wanted)


def test_sinks_are_refused() -> None:
    with pytest.raises(NotImplementedError):
        attention._refuse(False, None, torch.zeros(1))


def test_slots_are_entered_and_collected_request_after_request() -> None:
    pool = torch.zeros((3, 6), dtype=torch.int32)
    rows, starts, ends = torch.tensor([2, 0]), torch.tensor([1, 0]), torch.tensor([3, 3])
    new = torch.tensor([11, 12, 21, 22, 23])
    cache.assign_req_to_token_pool_cpu(rows, pool, starts, ends, new, 6)
    assert pool.tolist() == [[21, 22, 23, 0, 0, 0], [0] * 6, [0, 11, 12, 0, 0, 0]]
    out = torch.zeros(5, dtype=torch.long)
    cache.assign_extend_cache_locs_cpu(rows, pool, starts, ends, out, 6)
    assert out.tolist() == new.tolist()


def test_branches_share_the_prefix_and_have_their_own_draft_slots() -> None:
    pool = torch.arange(10, 22).view(1, 12)
    rows = cache.build_draft_decode_metadata_cpu(pool, torch.tensor([0]), torch.tensor([3]), 2, 2, 12)
    assert rows[:, :5].tolist() == [[10, 11, 12, 13, 14], [10, 11, 12, 15, 16]]
    drafts = torch.zeros(4, dtype=torch.long)
    cache.assign_draft_cache_locs_contiguous_cpu(torch.tensor([0]), pool, torch.tensor([3]), drafts, 12, 2, 2)
    assert drafts.tolist() == [13, 14, 15, 16]


def test_slots_are_moved_even_when_they_overlap() -> None:
    layers = [torch.arange(12, dtype=torch.float32).view(6, 2) + 100 * layer for layer in range(2)]
    before = [layer.clone() for layer in layers]
    pointers, strides = torch.tensor([layer.data_ptr() for layer in layers]), torch.tensor([8, 8])
    cache.copy_all_layer_kv_cache_cpu(pointers, strides, torch.tensor([1, 2]), torch.tensor([0, 1]))
    for old, moved in zip(before, layers, strict=True):
        assert moved[1].tolist() == old[0].tolist()
        assert moved[2].tolist() == old[1].tolist()


def test_the_bonus_is_the_last_accepted_token() -> None:
    bonus = torch.zeros(2, dtype=torch.long)
    cache.fill_bonus_tokens_cpu(torch.tensor([[5, 6, 0], [7, 8, 9]]), torch.tensor([2, 3]), bonus, 3)
    assert bonus.tolist() == [6, 9]
    moved = torch.zeros(4, dtype=torch.long)
    cache.fill_accept_out_cache_loc_cpu(torch.tensor([[0, 2, -1], [3, -1, -1]]), torch.tensor([10, 11, 12, 13]), moved)
    assert moved.tolist() == [10, 12, 13, 0]


def test_import_stand_ins_import_anything_and_run_nothing() -> None:
    program = """
import triton, triton.language as tl
from triton.runtime.jit import KernelInterface
from torchvision.transforms import InterpolationMode
assert InterpolationMode.BICUBIC == "BICUBIC"
assert (triton.cdiv(7, 2), triton.next_power_of_2(5), triton.next_power_of_2(8)) == (4, 8, 8)
@triton.jit
def plain(x): return x + 1
@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=[])
def tuned(x: tl.constexpr): return x + 2
assert (plain(1), tuned(1)) == (2, 3)
try: triton.jit(lambda: 0)[(1,)]()
except TypeError: print("refused")
"""
    path = ":".join(map(str, stand_in_paths(frozenset({"triton", "torchvision"}))))
    answer = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (answer.stdout, answer.stderr) == ("refused\n", "")


def test_only_what_is_missing_is_put_on_the_path() -> None:
    assert stand_in_paths(frozenset()) == ()
    assert [path.name for path in stand_in_paths(frozenset({"triton"}))] == ["common", "for_triton"]
    for path in stand_in_paths(frozenset(STAND_INS))[1:]:
        assert (path / path.name.removeprefix("for_") / "__init__.py").is_file()
    with pytest.raises(KeyError):
        stand_in_paths(frozenset({"numpy"}))
    assert Path(attention.__file__).parent.parent in stand_in_paths(frozenset({"sgl_kernel"}))
