"""What the rules say about a setting: legal with its effective configuration, or illegal with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.config import EngineConfig
from search_spaces.model_facts import DraftFacts, TargetFacts


@dataclass(frozen=True, kw_only=True)
class RuleContext:
    """What a setting is judged against. `args` are the flags that every launch gets, in snake_case."""

    target: TargetFacts
    draft: DraftFacts
    sglang_version: str
    args: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjustment:
    """SGLang silently runs something else than was asked. `message` has the numbers."""

    rule: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Legal:
    """A setting that SGLang can run.

    `effective` is the identity of the launch. `ids` are to be written to
    `eagle_config.eagle_aux_hidden_state_layer_ids` of the draft's config; None means that the key must be absent.
    """

    effective: EngineConfig
    ids: tuple[int, ...] | None
    adjustments: tuple[Adjustment, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Illegal:
    """A setting that SGLang refuses or that dies later. `message` is one line with the numbers."""

    rule: str
    message: str


Ruling = Legal | Illegal
