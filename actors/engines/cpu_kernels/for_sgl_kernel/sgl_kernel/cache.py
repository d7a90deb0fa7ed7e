"""Book-keeping of cache slots. `req_to_token[row, position]` is the KV slot of a request's token."""

# ruff: noqa: PLR0917 - the signatures are SGLang's

import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor


def _ranges(rows: Tensor, starts: Tensor, ends: Tensor) -> Iterator[tuple[int, int, int]]:
    return zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=False)


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Enter the new slots, request after request, at positions [start, end)."""
    used = 0
    for row, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        req_to_token[row, start:end] = out_cache_loc[used : used + end - start].to(req_to_token.dtype)
        used += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """The reverse: collect the slots of positions [start, end), request after request."""
    used = 0
    for row, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        out_cache_loc[used : used + end - start] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        used += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Collect the topk * num_steps slots that follow each request's sequence."""
    count = topk * num_steps
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        slots = req_to_token[row, length : length + count]
        out_cache_loc[i * count : (i + 1) * count] = slots.to(out_cache_loc.dtype)


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Move whole slots inside every layer's buffer, given by address; sources and targets may overlap."""
    sources, targets = src_loc.tolist(), tgt_loc.tolist()
    for base, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        contents = [ctypes.string_at(base + slot * stride, stride) for slot in sources]
        for slot, content in zip(targets, contents, strict=True):
            ctypes.memmove(base + slot * stride, content, stride)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """One row per branch: the request's prefix, then the branch's own num_steps draft slots."""
    rows = req_to_token.new_zeros((len(seq_lens) * topk, pool_len))
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            first = length + branch * num_steps
            rows[i * topk + branch, :length] = req_to_token[row, :length]
            rows[i * topk + branch, length : length + num_steps] = req_to_token[row, first : first + num_steps]
    return rows


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """The last accepted token of each request."""
    at = torch.arange(len(accept_lens)) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.flatten()[at])


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """The slots of accepted tokens, moved to the front; -1 in `accept_index` means none."""
    accepted = accept_index.flatten()
    accepted = accepted[accepted > -1].long()
    accept_out_cache_loc[: len(accepted)] = out_cache_loc[accepted]
