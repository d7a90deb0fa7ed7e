"""A search space: the product of all values, before any rule is applied."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from search_spaces.config import Flags, FlagValue, Setting
from search_spaces.errors import InputError
from search_spaces.layouts import parse_layout_label

RESERVED_FLAGS: tuple[str, ...] = (
    "model_path",
    "speculative_draft_model_path",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "tensor_parallel_size",
    "tp",
    "tp_size",
)
"""Flags that a setting has under another name, or that a study fixes; they cannot be a further dimension."""

FlagDimensions = tuple[tuple[str, tuple[FlagValue, ...]], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpace:
    """All values of every dimension. `flags` are further SGLang flags in snake_case, sorted by name.

    InputError for an empty dimension, a repeated or impossible value, a bad layout label or a reserved flag.
    """

    layout: tuple[str, ...]
    num_steps: tuple[int | None, ...]
    eagle_topk: tuple[int | None, ...]
    num_draft_tokens: tuple[int | None, ...]
    tp_size: tuple[int, ...]
    flags: FlagDimensions = ()

    def __post_init__(self) -> None:
        for name in ("num_steps", "eagle_topk", "num_draft_tokens", "tp_size"):
            _check_numbers(name, getattr(self, name), may_be_none=name != "tp_size")
        _check_distinct("layout", self.layout)
        for label in self.layout:
            parse_layout_label(label)
        names = [name for name, _ in self.flags]
        if names != sorted(set(names)):
            raise InputError(f"space.flags: names must be sorted and distinct, not {names}")
        for name, values in self.flags:
            if name in RESERVED_FLAGS:
                raise InputError(f"space.flags.{name}: not a further flag; use the key of the space or the spec")
            _check_distinct(f"flags.{name}", values)

    @property
    def size(self) -> int:
        """How many settings the full product has."""
        return math.prod(len(values) for values in self._dimensions())

    @property
    def content_hash(self) -> str:
        """16 hexadecimal digits, equal for equal spaces, stable across processes."""
        content = [list(map(list, self._dimensions())), [name for name, _ in self.flags]]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]

    def settings(self) -> Iterator[Setting]:
        """The full product in a fixed order: TP size outermost, then layout, flags, and the three numbers."""
        flag_sets = self._flag_sets()
        numbers = list(itertools.product(self.num_steps, self.eagle_topk, self.num_draft_tokens))
        for tp_size, layout, flags in itertools.product(self.tp_size, self.layout, flag_sets):
            for steps, topk, tokens in numbers:
                yield Setting(
                    layout=layout,
                    num_steps=steps,
                    eagle_topk=topk,
                    num_draft_tokens=tokens,
                    tp_size=tp_size,
                    flags=flags,
                )

    @property
    def constant_flags(self) -> Flags:
        """The flags that have one value in the whole space."""
        return tuple((name, values[0]) for name, values in self.flags if len(values) == 1)

    def _flag_sets(self) -> list[Flags]:
        names = [name for name, _ in self.flags]
        products = itertools.product(*(values for _, values in self.flags))
        return [tuple(zip(names, values, strict=True)) for values in products]

    def _dimensions(self) -> tuple[tuple[object, ...], ...]:
        numbers = (self.num_steps, self.eagle_topk, self.num_draft_tokens, self.tp_size)
        return (self.layout, *numbers, *(values for _, values in self.flags))


def _check_numbers(name: str, values: tuple[object, ...], *, may_be_none: bool) -> None:
    _check_distinct(name, values)
    for value in values:
        if value is None and may_be_none:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"space.{name}: {value!r} is not a whole number of at least 1")


def _check_distinct(name: str, values: tuple[object, ...]) -> None:
    if not values:
        raise InputError(f"space.{name}: no values; give at least one")
    # True and 1 are equal in Python but are two values of a flag
    if len({(type(value), value) for value in values}) < len(values):
        raise InputError(f"space.{name}: a value is repeated in {list(values)}")
