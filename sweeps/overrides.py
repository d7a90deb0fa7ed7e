"""`--set key.path=YAML`: values from the command line that replace those of the spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.errors import InputError
from sweeps.spec_yaml import KeyPath, Tree, read_yaml, show_path


@dataclass(frozen=True, kw_only=True)
class Override:
    """One replaced value; `source` is the option as it was written."""

    path: KeyPath
    value: Any
    source: str


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Reads `key.path=YAML` texts; InputError when one has no `=`, an empty name or a value that is not YAML."""
    return tuple(_parse(text) for text in texts)


def apply_overrides(tree: Tree, overrides: Iterable[Override]) -> dict[str, Any]:
    """A copy of `tree` with every override set, in order; sections on the way are made when missing.

    InputError when the way leads through something that is not a mapping.
    """
    result = dict(tree)
    for override in overrides:
        result = _set(result, override, depth=0)
    return result


def _parse(text: str) -> Override:
    source = "--set " + " ".join(text.split())
    name, equals, value = text.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        raise InputError(f"{source}: write key.path=value, for example space.tp_size=[1,2]")
    return Override(path=path, value=read_yaml(value, source, numbered=False).value, source=source)


def _set(tree: Mapping[str, Any], override: Override, depth: int) -> dict[str, Any]:
    key = str(override.path[depth])
    if depth + 1 == len(override.path):
        return {**tree, key: override.value}
    inner = tree.get(key)
    if inner is not None and not isinstance(inner, Mapping):
        around = show_path(override.path[: depth + 1])
        raise InputError(f"{override.source}: {around} is not a mapping of keys; set the whole of {around}")
    return {**tree, key: _set(inner or {}, override, depth + 1)}
