"""What a server's resolved arguments say about the batches it decodes: how many requests at once, and on CUDA graphs.

`/server_info` of SGLang 0.5.23 has the resolved `cuda_graph_config` (`srt/model_executor/cuda_graph_config.py`), whose
`decode` part holds `backend`, `max_bs` and `bs`; the convenience flags beside it stay empty unless they were given.
Older releases had `disable_cuda_graph`, `cuda_graph_max_bs` and `cuda_graph_bs` instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

EFFECTIVE_LIMIT = "effective_max_running_requests"
"""Where the engine puts the limit that its memory pools leave, summed over data-parallel ranks."""


def request_limit(args: Mapping[str, Any]) -> int | None:
    """How many requests the server runs at once: what it was told, or less if its memory pools hold less."""
    limits = [_whole(args.get(name)) for name in ("max_running_requests", EFFECTIVE_LIMIT)]
    return min((limit for limit in limits if limit is not None), default=None)


def graph_problem(args: Mapping[str, Any], in_flight: int) -> str | None:
    """Why decoding with that many requests in flight runs without CUDA graphs; None when it does not, or on a CPU.

    A batch larger than the largest captured one, and without padding one of another size than those, runs eagerly
    (`can_run_graph` of `srt/model_executor/runner/decode_cuda_graph_runner.py`). What waits in the queue is in no
    batch, and data-parallel ranks share the requests.
    """
    if args.get("device") != "cuda":
        return None
    decode = _decode_config(args)
    if graphs_disabled(args):
        return "decoding runs without CUDA graphs (they are disabled)"
    batch = min(in_flight, request_limit(args) or in_flight)
    batch = math.ceil(batch / (_whole(args.get("dp_size")) or 1))
    largest, sizes = _whole(decode.get("max_bs")), decode.get("bs")
    captured = [size for size in sizes if _whole(size)] if isinstance(sizes, list) else []
    if largest is None and captured:
        largest = max(captured)
    if largest is not None and largest < batch:
        return f"decoding {batch} requests at once runs without CUDA graphs, which cover batches up to {largest}"
    if args.get("disable_cuda_graph_padding") is True and captured and batch not in captured:
        return f"decoding {batch} requests at once runs without CUDA graphs: no batch of that size was captured"
    return None


def graphs_disabled(args: Mapping[str, Any]) -> bool:
    """Whether decoding was told to do without graphs, whatever the device."""
    return _decode_config(args).get("backend") == "disabled"


def _decode_config(args: Mapping[str, Any]) -> dict[str, Any]:
    """`backend`, `max_bs` and `bs` of decoding, as far as they are known."""
    config = args.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, Mapping) else None
    found = dict(decode) if isinstance(decode, Mapping) else {}
    for name, spellings in (
        ("backend", ("cuda_graph_backend_decode",)),
        ("max_bs", ("cuda_graph_max_bs_decode", "cuda_graph_max_bs")),
        ("bs", ("cuda_graph_bs_decode", "cuda_graph_bs")),
    ):
        given = next((args[spelling] for spelling in spellings if args.get(spelling) is not None), None)
        if found.get(name) is None and given is not None:
            found[name] = given
    if found.get("backend") is None and any(
        args.get(name) is True for name in ("disable_cuda_graph", "disable_decode_cuda_graph")
    ):
        found["backend"] = "disabled"
    return found


def _whole(value: object) -> int | None:
    """A whole number above 0, else None: what a server calls `null`, 0 or `true` is no size."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
