"""Checkpoints of a few hundred bytes: a config and a safetensors header with as little data as a test needs."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}
DRAFT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 4096,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}

_SIZES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "BOOL": 1, "F8_E4M3": 1}


def header_bytes(tensors: Mapping[str, tuple[str, list[int]]]) -> bytes:
    """A safetensors header for tensors laid out one after another."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = _SIZES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    content = json.dumps(header).encode()
    return struct.pack("<Q", len(content)) + content


def draft_tensors(
    taps: int = 3, hidden: int = 4096, draft_hidden: int = 4096, vocab: int = 32000
) -> dict[str, tuple[str, list[int]]]:
    return {
        "fc.weight": ("BF16", [draft_hidden, taps * hidden]),
        "midlayer.hidden_norm.weight": ("BF16", [draft_hidden]),
        "norm.weight": ("BF16", [draft_hidden]),
        "lm_head.weight": ("BF16", [vocab, draft_hidden]),
    }


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, list[int]]] | None = None,
    d2t: list[int] | None = None,
) -> Path:
    """Write `config.json` and, when asked, a sparse `model.safetensors` whose `d2t` holds the values given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is None:
        return folder
    first = {} if d2t is None else {"d2t": ("I64", [len(d2t)])}
    with (folder / "model.safetensors").open("wb") as handle:
        head = header_bytes({**first, **tensors})
        handle.write(head)
        if d2t is not None:
            handle.write(array("q", d2t).tobytes())
        (length,) = struct.unpack("<Q", head[:8])
        entries = json.loads(head[8:])
        handle.truncate(8 + length + max(entry["data_offsets"][1] for entry in entries.values()))
    return folder
