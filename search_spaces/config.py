"""Engine configurations: what is asked (`Setting`) and what a server runs (`EngineConfig`), with its identity."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

Taps = tuple[int, ...]
"""Ordered taps: 0 is the embedding output, i the output of block i counted from 1, N the output of the last block."""

FlagValue = bool | int | float | str
Flags = tuple[tuple[str, FlagValue], ...]
"""Further SGLang flags in snake_case, sorted by name."""


def _check_int(name: str, value: object, low: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, not {value!r}")


def _check_flags(flags: Flags) -> None:
    names = [name for name, _ in flags]
    if names != sorted(set(names)):
        raise ValueError(f"flags must be sorted and distinct, not {names}")


@dataclass(frozen=True, kw_only=True, order=True, slots=True)
class Triple:
    """(num_steps, eagle_topk, num_draft_tokens). The last counts the verified root, as SGLang's flag does."""

    num_steps: int
    eagle_topk: int
    num_draft_tokens: int

    def __post_init__(self) -> None:
        for name in ("num_steps", "eagle_topk", "num_draft_tokens"):
            _check_int(name, getattr(self, name))

    @property
    def ceiling(self) -> int:
        """The largest accept length this triple can reach: every step accepted, plus the bonus token."""
        return self.num_steps + 1

    def __str__(self) -> str:
        return f"({self.num_steps},{self.eagle_topk},{self.num_draft_tokens})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One point of the space as the user asks for it.

    `layout` is a label: `default` (SGLang's own choice), `shipped` (as the draft's config says) or taps such as
    `0,3,7`. The three speculative numbers may all be None: SGLang then chooses by architecture.
    """

    layout: str
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    tp_size: int
    flags: Flags = ()

    def __post_init__(self) -> None:
        for name in ("num_steps", "eagle_topk", "num_draft_tokens"):
            if getattr(self, name) is not None:
                _check_int(name, getattr(self, name))
        _check_int("tp_size", self.tp_size)
        _check_flags(self.flags)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """What a server runs after SGLang's own rules: the identity of a trial.

    `layout` and `triple` are both None for the baseline (no speculation). `layout` holds the taps that really feed
    the draft, so two spellings of one server are equal.
    """

    layout: Taps | None
    triple: Triple | None
    tp_size: int
    flags: Flags = ()

    def __post_init__(self) -> None:
        if (self.layout is None) != (self.triple is None):
            raise ValueError("layout and triple are given together, or neither (the baseline)")
        for tap in self.layout or ():
            _check_int("tap", tap, low=0)
        _check_int("tp_size", self.tp_size)
        _check_flags(self.flags)

    @property
    def is_baseline(self) -> bool:
        return self.triple is None

    @property
    def identity(self) -> str:
        """16 hexadecimal digits, equal for equal configurations, stable across processes and versions of Python."""
        triple = self.triple and [self.triple.num_steps, self.triple.eagle_topk, self.triple.num_draft_tokens]
        content = [self.layout and list(self.layout), triple, self.tp_size, [list(flag) for flag in self.flags]]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]


def layout_label(taps: Taps) -> str:
    """The label under which a layout is stored and shown: `0,3,7`."""
    return ",".join(str(tap) for tap in taps)
