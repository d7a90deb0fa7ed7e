"""CPU stand-in for SGLang's `sgl_kernel` extension, in plain torch: enough to serve small models with EAGLE-3.

On a CPU, SGLang imports these functions from `sgl_kernel` (kernels/ops/speculative/{spec_tree,cache_locs,eagle}.py,
kernels/ops/kvcache/cache_move.py, srt/mem_cache/allocation.py) and finds the others under `torch.ops.sgl_kernel`
(srt/layers/attention/intel_amx_backend.py). Signatures are theirs. Slow, any dtype, no AMX.
"""

import torch

from .attention import decode_attention_cpu, extend_attention_cpu
from .cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
)
from .threads import init_cpu_threads_env, initialize
from .tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__version__ = "0.0.0+specsweep.cpu"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]

for _function in (decode_attention_cpu, extend_attention_cpu, init_cpu_threads_env, initialize):
    setattr(torch.ops.sgl_kernel, _function.__name__, _function)  # plain attributes: nothing here is traced or compiled
