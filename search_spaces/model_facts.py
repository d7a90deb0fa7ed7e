"""What a target and a draft checkpoint declare, as read from configs and safetensors headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TensorFacts:
    """One entry of a safetensors header."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """A target checkpoint. `architecture` is the class name in `config.json`, `model_type` its family."""

    path: Path
    architecture: str
    model_type: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    config: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class DraftFacts:
    """An EAGLE-3 draft checkpoint.

    `aux_ids` are the ids that SGLang itself would find (`eagle_config.eagle_aux_hidden_state_layer_ids`), None when it
    would find none. `tensors` maps names to header entries; empty when no weights could be read (`weights_unread`
    then says why).
    """

    path: Path
    architecture: str
    hidden_size: int
    aux_ids: tuple[int, ...] | None
    tensors: Mapping[str, TensorFacts] = field(repr=False)
    weights_unread: str | None
    config: Mapping[str, Any] = field(repr=False)

    @property
    def fc_in_features(self) -> int | None:
        """Width of what feeds `fc` (taps x target hidden size); None without weights or without an `fc`."""
        fc = self.tensors.get("fc.weight")
        return fc.shape[1] if fc is not None and len(fc.shape) == 2 else None
