"""Attention over the paged KV buffer, one request after the other. Shapes: q and o [tokens, heads, dim], buffers
[slots, kv_heads, dim]; several query heads share a KV head. `req_to_token` maps positions to slots."""

# ruff: noqa: PLR0917 - the signatures are SGLang's

import torch
from torch import Tensor
from torch.nn import functional


def decode_attention_cpu(
    q: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    o: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """One new token per request, which attends to its whole sequence; `key` and `value` are stored at `loc` first."""
    _refuse(is_cross_attn, encoder_lens, sinks)
    if key is not None and value is not None:
        k_buffer[loc] = key.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc] = value.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        visible = _within_window(torch.ones(1, length, dtype=torch.bool), torch.tensor([length - 1]), sliding_window)
        slots = req_to_token[row, :length].long()
        o[i : i + 1] = _attend(q[i : i + 1], k_buffer[slots], v_buffer[slots], sm_scale, visible, logit_cap)


def extend_attention_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_extend_len: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Several new tokens per request (already in the buffer): causal, or along the draft tree given by `tree_mask`."""
    _refuse(is_cross_attn, encoder_lens, sinks)
    used = 0
    rows = (req_pool_indices, seq_lens, extend_seq_lens, extend_start_loc)
    for row, length, new, start in zip(*(column.tolist() for column in rows), strict=False):
        positions = torch.arange(length - new, length)
        if tree_mask is not None:  # the prefix is visible to all, the tree to those below
            visible = torch.ones(new, length, dtype=torch.bool)
            visible[:, length - new :] = tree_mask[used : used + new * new].view(new, new).bool()
            used += new * new
        elif is_causal:
            visible = torch.arange(length)[None] <= positions[:, None]
        else:
            visible = torch.ones(new, length, dtype=torch.bool)
        visible = _within_window(visible, positions, sliding_window)
        slots, own = req_to_token[row, :length].long(), slice(start, start + new)
        o[own] = _attend(q[own], k_buffer[slots], v_buffer[slots], sm_scale, visible, logit_cap)


def _refuse(is_cross_attn: bool, encoder_lens: Tensor | None, sinks: Tensor | None) -> None:
    if is_cross_attn or encoder_lens is not None or sinks is not None:
        raise NotImplementedError("the CPU stand-in has no cross attention and no attention sinks")


def _within_window(visible: Tensor, positions: Tensor, window: int) -> Tensor:
    if window <= 0:
        return visible
    return visible & (torch.arange(visible.shape[1])[None] > positions[:, None] - window)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Tensor, cap: float) -> Tensor:
    """[queries, heads, dim] from keys and values [length, kv_heads, dim]; `cap` > 0 squashes the logits by tanh."""
    repeat = q.shape[1] // k.shape[1]
    query = q.transpose(0, 1)
    keys = k.to(q.dtype).transpose(0, 1).repeat_interleave(repeat, 0)
    values = v.to(q.dtype).transpose(0, 1).repeat_interleave(repeat, 0)
    if cap > 0:
        logits = cap * torch.tanh((query @ keys.transpose(1, 2)) * scale / cap)
        out = logits.masked_fill(~visible, float("-inf")).softmax(-1) @ values
    else:
        out = functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], attn_mask=visible, scale=scale
        )[0]
    return out.transpose(0, 1)
