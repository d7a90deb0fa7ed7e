"""What a target and a draft checkpoint declare, as read from configs and safetensors headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFacts:
    """One entry of a safetensors header."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class VocabMapFacts:
    """What a draft's `d2t` and `t2d` tensors say. SGLang reads target id = draft id + d2t[draft id].

    `lowest_target_id` and `highest_target_id` bound the target ids reached, `distinct_target_ids` counts them.
    `t2d_agrees` is False when `t2d` marks other target ids than `d2t` reaches, None when one of the two is unread.
    `holds_target_ids` is True when `t2d` marks the plain values of `d2t`: ids were stored instead of offsets.
    """

    entries: int
    all_zero: bool
    lowest_target_id: int
    highest_target_id: int
    distinct_target_ids: int
    t2d_entries: int | None
    t2d_agrees: bool | None
    holds_target_ids: bool = False


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """A target checkpoint. `architecture` is the class name in `config.json`, `model_type` its family.

    `config` is the whole of `config.json`; `text_config` the part that describes the language model (the whole again
    for a text-only model). `embedding_shape` is that of the input embedding's weight, None when it was not read.
    """

    path: Path
    architecture: str
    model_type: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    config: Mapping[str, Any] = field(repr=False)
    embedding_shape: tuple[int, ...] | None = None
    weights_unread: str | None = None
    weights_problems: tuple[str, ...] = ()

    @property
    def text_config(self) -> Mapping[str, Any]:
        return text_config_of(self.config)


@dataclass(frozen=True, kw_only=True)
class DraftFacts:
    """An EAGLE-3 draft checkpoint.

    `aux_ids` are the ids that SGLang itself would find (`eagle_config.eagle_aux_hidden_state_layer_ids`), None when it
    would find none. `tensors` maps names to header entries; empty when no weights could be read (`weights_unread`
    then says why). `weights_problems` are faults of the files short of an unreadable header (missing or short shards).
    `vocab_map` is None without a `d2t` tensor, or when its values were not read (`vocab_map_unread` then says why).
    """

    path: Path
    architecture: str
    hidden_size: int
    aux_ids: tuple[int, ...] | None
    tensors: Mapping[str, TensorFacts] = field(repr=False)
    weights_unread: str | None
    config: Mapping[str, Any] = field(repr=False)

    weights_problems: tuple[str, ...] = ()
    vocab_map: VocabMapFacts | None = None
    vocab_map_unread: str | None = None

    @property
    def text_config(self) -> Mapping[str, Any]:
        return text_config_of(self.config)

    @property
    def eagle_config(self) -> Mapping[str, Any]:
        """The `eagle_config` block as SGLang sees it: empty unless it is a mapping."""
        block = self.config.get("eagle_config")
        return block if isinstance(block, Mapping) else {}

    def tensor(self, name: str) -> TensorFacts | None:
        """The tensor of that name, with or without a prefix such as `model.`."""
        for full, facts in self.tensors.items():
            if full == name or full.endswith(f".{name}"):
                return facts
        return None

    @property
    def fc_in_features(self) -> int | None:
        """Width of what feeds `fc` (taps x target hidden size); None without weights or without an `fc`."""
        fc = self.tensor("fc.weight")
        return fc.shape[1] if fc is not None and len(fc.shape) == 2 else None


_TEXT_BLOCKS = ("thinker_config", "llm_config", "language_config", "text_config")


def text_config_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a `config.json` that describes the language model.

    Same order as SGLang (`srt/utils/hf_transformers/common.py`, `get_hf_text_config`); a block that names no layers
    is passed over.
    """
    for name in _TEXT_BLOCKS:
        block = config.get(name)
        if not isinstance(block, Mapping):
            continue
        inner = block.get("text_config") if name == "thinker_config" else None
        block = inner if isinstance(inner, Mapping) else block
        if "num_hidden_layers" in block:
            return block
    return config
