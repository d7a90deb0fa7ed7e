"""The draft tree: from scored candidates to masks and links, and the greedy walk that verifies it.

Slot 0 of a request's tree is the verified token; slots 1 to n-1 are the kept candidates in the order of their index in
the pool. The pool holds topk candidates for the first step and topk * topk for each further one; `parent_list` names,
for every group of topk candidates, the pool index of their common parent (-1 for the root).
"""

# ruff: noqa: PLR0917 - the signatures are SGLang's

import torch
from torch import Tensor

QLEN_ONLY = 1
"""TreeMaskMode.QLEN_ONLY (speculative/eagle_utils.py): the mask covers the tree alone, not the prefix."""


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Fill masks, positions and first-child/next-sibling links of every request, in place."""
    if int(tree_mask_mode) != QLEN_ONLY:
        raise NotImplementedError("only masks of the tree alone (QLEN_ONLY)")
    size = draft_token_num
    masks = tree_mask[: len(verified_seq_len) * size * size].view(-1, size, size)
    for request, length in enumerate(verified_seq_len.tolist()):
        parents = _parent_slots(parent_list[request].tolist(), selected_index[request].tolist(), topk, size)
        retrive_index[request] = torch.arange(request * size, (request + 1) * size)
        _link(parents, retrive_next_token[request], retrive_next_sibling[request])
        for slot, path in enumerate(_paths(parents)):
            masks[request, slot] = False
            masks[request, slot, path] = True
            positions[request * size + slot] = length + len(path) - 1


def _parent_slots(parent_list: list[int], selected: list[int], topk: int, size: int) -> list[int]:
    """The slot of each slot's parent: 0 is the root, -1 a parent that was not kept."""
    slots = {index: slot for slot, index in enumerate(selected, start=1)}
    parents = [0] * size
    for slot in range(1, size):
        group = selected[slot - 1] // topk
        parents[slot] = slots.get(parent_list[group], -1) if group else 0
    return parents


def _link(parents: list[int], first_child: Tensor, next_sibling: Tensor) -> None:
    """Children hang in the order of their slots: the last one linked is tried first."""
    for slot in range(len(parents) - 1, 0, -1):
        if parents[slot] >= 0:
            next_sibling[slot] = first_child[parents[slot]]
            first_child[parents[slot]] = slot


def _paths(parents: list[int]) -> list[list[int]]:
    """For each slot the slots it may look at: itself, its ancestors and the root."""
    paths = []
    for slot in range(len(parents)):
        path, at = [0], slot
        while at > 0:
            path.append(at)
            at = parents[at]
        paths.append(path)
    return paths


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk down each request's tree while some child is what the target says; its next token is the bonus."""
    target = target_predict.flatten().tolist()
    for request in range(candidates.shape[0]):
        rows, tokens = retrive_index[request].tolist(), candidates[request].tolist()
        child, sibling = retrive_next_token[request].tolist(), retrive_next_sibling[request].tolist()
        at, row, accepted = 0, rows[0], 0
        accept_index[request, 0] = row
        for _ in range(1, accept_index.shape[1]):
            at = child[at]
            while at != -1 and tokens[at] != target[row]:
                at = sibling[at]
            if at == -1:
                break
            predicts[row] = target[row]
            accepted, row = accepted + 1, rows[at]
            accept_index[request, accepted] = row
        accept_token_num[request] = accepted
        predicts[row] = target[row]
