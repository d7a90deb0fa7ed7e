"""What pydantic found wrong, as the key path and one line for the user."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from sweeps.nearest import nearest
from sweeps.spec_engine import ENGINES
from sweeps.spec_fields import show
from sweeps.spec_yaml import KeyPath

Problem = tuple[KeyPath, str]

MISSING = "this key is required"

_KINDS = {
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "float_type": "is not a number",
    "finite_number": "is not a finite number",
    "bool_type": "is neither true nor false",
    "string_type": "is not text; put it in quotes",
    "string_too_short": "is empty",
    "tuple_type": "is not a list",
    "dict_type": "is not a mapping of names to values",
    "model_type": "is not a mapping of keys",
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def explain(error: ErrorDetails, root: type[BaseModel]) -> Problem:
    """The key path and the message of one pydantic error of a model `root`; the message never has a line break."""
    location: KeyPath = tuple(part for part in error["loc"] if part != "[key]")
    path = _without_engine_kind(location)
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return path, f"unknown key{nearest(str(path[-1]), _keys_at(root, location[:-1]))}"
    if kind == "union_tag_invalid":
        value = value["kind"]
        return (*path, "kind"), f"{show(value)} is not legal here{nearest(str(value), list(ENGINES))}"
    if kind == "missing":
        return path, MISSING
    return path, " ".join(_message(error, kind, value).split())


def _message(error: ErrorDetails, kind: str, value: Any) -> str:
    context = error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        legal = [part.strip(" '") for part in context["expected"].replace(" or ", ", ").split(",")]
        return f"{show(value)} is not legal here{nearest(str(value), legal)}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"{show(value)} must be {words} {context[key]:g}"
    return f"{show(value)} {_KINDS.get(kind) or error['msg']}"


def _without_engine_kind(location: KeyPath) -> KeyPath:
    """Pydantic names the kind of engine that it took a section for; the file has no such key."""
    if len(location) > 1 and location[0] == "engine" and location[1] in ENGINES:
        return (location[0], *location[2:])
    return location


def _keys_at(root: type[BaseModel], location: KeyPath) -> list[str]:
    """The legal keys of the section at pydantic's `location`."""
    if location[:1] == ("engine",):
        return list(ENGINES[str(location[1])].model_fields)
    model = root
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        candidates = [annotation, *get_args(annotation)]
        model = next(item for item in candidates if isinstance(item, type) and issubclass(item, BaseModel))
    return list(model.model_fields)
