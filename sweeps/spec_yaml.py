"""YAML text to a plain tree that still knows where each key stands.

Mappings become dicts with text keys (as written: `no:` is the key "no"), sequences become tuples. Scalars follow YAML
1.1 as PyYAML reads it, with three mends: only true and false are booleans (`off` and `no` are text, as in YAML 1.2),
`1e3` is a number, and a date is the text that was written.
Duplicate keys, merge keys, tags and self-references are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from search_spaces.errors import InputError

KeyPath = tuple[str | int, ...]
Tree = Mapping[str, Any]

MAX_NODES = 100_000
"""A spec is small; more nodes than this is an accident or an alias that multiplies itself."""


class _Loader(yaml.CSafeLoader):
    """PyYAML's safe loader in C; only its composer and resolver are used."""


_BOOL = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+0123456789.")
)

_scalars: Any = yaml.constructor.SafeConstructor()
_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "tag:yaml.org,2002:null": lambda node: None,
    _BOOL: _scalars.construct_yaml_bool,
    "tag:yaml.org,2002:int": _scalars.construct_yaml_int,
    "tag:yaml.org,2002:float": _scalars.construct_yaml_float,
    "tag:yaml.org,2002:str": lambda node: node.value,
    "tag:yaml.org,2002:timestamp": lambda node: node.value,
}


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed YAML value and the line (from 1) of every key and item in it."""

    source: str
    value: Any
    lines: Mapping[KeyPath, int] = field(repr=False)

    def line(self, path: KeyPath) -> int:
        """The line of `path`, or of the closest thing around it that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def where(self, path: KeyPath) -> str:
        return f"{self.source}:{self.line(path)}"


def read_yaml(text: str, source: str, *, numbered: bool = True) -> Document:
    """Parses one YAML document; InputError names `source` and, when `numbered`, the line of what is wrong."""
    builder = _Builder(source, numbered)
    try:
        root = yaml.compose(text, Loader=_Loader)
        value = None if root is None else builder.build(root, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise builder.error(mark.line + 1 if mark else 1, f"not valid YAML: {_problem(error)}") from error
    except yaml.YAMLError as error:
        raise builder.error(1, f"not valid YAML: {_one_line(str(error))}") from error
    except RecursionError as error:
        raise builder.error(1, "nested too deeply") from error
    return Document(source=source, value=value, lines=builder.lines)


def show_path(path: KeyPath) -> str:
    """A key path as users write it: `space.layout[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


class _Builder:
    def __init__(self, source: str, numbered: bool) -> None:
        self._source = source
        self._numbered = numbered
        self.lines: dict[KeyPath, int] = {}
        self._open: set[int] = set()

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(self.lines) > MAX_NODES:
            raise self._error(node, path, f"more than {MAX_NODES} values")
        if id(node) in self._open:
            raise self._error(node, path, "an alias that contains itself")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return dict(self._pairs(node, path))
            if isinstance(node, yaml.SequenceNode):
                return tuple(self.build(item, (*path, index)) for index, item in enumerate(node.value))
            return self._scalar(node, path)
        finally:
            self._open.discard(id(node))

    def _pairs(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Any]]:
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise self._error(key_node, path, "a key must be a plain name (merge keys `<<` are not supported)")
            inner = (*path, key_node.value)
            if inner in self.lines:
                raise self._error(key_node, inner, f"key given twice (first on line {self.lines[inner]})")
            self.lines[inner] = key_node.start_mark.line + 1
            yield key_node.value, self.build(value_node, inner)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        reader = _READERS.get(node.tag)
        if reader is None:
            raise self._error(
                node, path, f"the YAML tag {node.tag.replace('tag:yaml.org,2002:', '!!')} is not supported"
            )
        try:
            return reader(node)
        except (ValueError, KeyError, yaml.YAMLError) as error:
            raise self._error(node, path, f"{node.value!r} cannot be read as {node.tag.rpartition(':')[2]}") from error

    def error(self, line: int, message: str) -> InputError:
        return InputError(f"{self._source}{f':{line}' if self._numbered else ''}: {message}")

    def _error(self, node: yaml.Node, path: KeyPath, message: str) -> InputError:
        return self.error(node.start_mark.line + 1, f"{show_path(path)}: {message}" if path else message)


def _problem(error: yaml.MarkedYAMLError) -> str:
    parts = [error.problem, f"({error.context})" if error.context and error.problem else error.context]
    return _one_line(" ".join(part for part in parts if part)) or "cannot be parsed"


def _one_line(text: str) -> str:
    return " ".join(text.split())
