"""Field types of the spec: each checks one value, and says in one line what is wrong and what is legal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from actors.engines.endpoint_url import url_problem

MAX_VALUES = 10_000
"""The most values one dimension may have."""

Layout = tuple[int, ...] | str
FlagValue = bool | int | float | str

_STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FLAG_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+([._-]?[A-Za-z0-9]+)*")


def show(value: object) -> str:
    """A value as it would be written in YAML, shortened to 80 characters."""
    text = _flow(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _flow(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _study_name(value: object) -> str:
    if not isinstance(value, str) or not _STUDY_NAME.fullmatch(value):
        raise ValueError(
            f"{show(value)} is not a study's name: up to 100 letters, digits, `.`, `_` and `-`, the first no sign"
        )
    return value


def _layout(value: object) -> Layout:
    if value in ("default", "shipped"):
        return str(value)
    if isinstance(value, list | tuple) and value and all(_is_whole(tap) and tap >= 0 for tap in value):
        return tuple(value)
    hint = "; write a list of lists: [[0, 3, 7]]" if _is_whole(value) else ""
    raise ValueError(f"{show(value)} is not a layout: a list of taps such as [2, 18, 33], `default` or `shipped`{hint}")


def _rate(value: object) -> float:
    if not _is_number(value) or value <= 0:
        raise ValueError(f"{show(value)} is not a number of requests per second above 0")
    return float(value)


def _rate_or_null(value: object) -> float | None:
    return None if value is None else _rate(value)


def _flag_value(value: object) -> FlagValue:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    hint = "; leave the flag out instead" if value is None else ""
    raise ValueError(f"{show(value)} is not a flag's value: text, a finite number, true or false{hint}")


def _flag_name(value: object) -> str:
    if not isinstance(value, str) or not _FLAG_NAME.fullmatch(value):
        mended = str(value).lstrip("-").replace("-", "_").lower()
        hint = f"; write {mended}" if _FLAG_NAME.fullmatch(mended) else ""
        raise ValueError(f"{show(value)} is not a flag in snake_case{hint}")
    return value


def _env_name(value: object) -> str:
    if not isinstance(value, str) or not _ENV_NAME.fullmatch(value):
        raise ValueError(f"{show(value)} is not the name of an environment variable")
    return value


def _env_value(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{show(value)} is not text; quote it: '{_flow(value)}'")
    return value


def _version(value: object) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise ValueError(f"{show(value)} is not a version such as '0.5.23'")
    return value


def _url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a URL such as http://127.0.0.1:30000")
    problem = url_problem(value)
    if problem is not None:
        raise ValueError(problem)
    return value


def _prompts(value: object) -> int | str:
    if _is_whole(value) and value >= 1:
        return value
    if isinstance(value, str) and value:
        return value
    raise ValueError(
        f"{show(value)} is neither a count of built-in prompts (at least 1) nor a set, file, folder or hf:DATASET"
    )


def _count(value: object) -> int:
    if not _is_whole(value) or value < 1:
        raise ValueError(f"{show(value)} is not a whole number of at least 1")
    return value


def _count_or_null(value: object) -> int | None:
    return None if value is None else _count(value)


def _count_or_auto(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if not _is_whole(value) or value < 1:
        raise ValueError(f"{show(value)} is neither a whole number of at least 1 nor `auto`")
    return value


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _expand_range(value: object) -> object:
    """A mapping {low, high, step} becomes the tuple of its values, `high` included; anything else is left alone."""
    if isinstance(value, list | tuple):
        return tuple(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"{show(value)} is not a list of values or a range; write [{_flow(value)}]")
    legal = ("low", "high", "step")
    unknown = [key for key in value if key not in legal]
    missing = [key for key in legal[:2] if key not in value]
    if unknown or missing:
        wrong = f"unknown key {unknown[0]}" if unknown else f"{missing[0]} is missing"
        raise ValueError(f"{show(value)} is not a range: {wrong} (legal: {', '.join(legal)})")
    low, high, step = value["low"], value["high"], value.get("step", 1)
    if not all(_is_number(number) for number in (low, high, step)) or step <= 0 or high < low:
        raise ValueError(f"{show(value)} is not a range: numbers with low <= high and step > 0")
    count = math.floor((high - low) / step + 1e-9) + 1
    if count > MAX_VALUES:
        raise ValueError(f"{show(value)} has {count} values; at most {MAX_VALUES}")
    # rounding keeps 0.1 steps readable: 0.7, not 0.7000000000000001
    return tuple(
        number if _is_whole(number) else round(number, 12) for number in (low + i * step for i in range(count))
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("the list is empty")
    return _not_twice(values)


def _not_twice(values: tuple[Any, ...]) -> tuple[Any, ...]:
    seen: set[tuple[type, Any]] = set()
    for value in values:
        if (type(value), value) in seen:
            raise ValueError(f"{show(value)} is in the list twice")
        seen.add((type(value), value))
    return values


_RANGE_SCHEMA = {
    "type": "object",
    "required": ["low", "high"],
    "additionalProperties": False,
    "properties": {
        "low": {"type": "number"},
        "high": {"type": "number"},
        "step": {"type": "number", "exclusiveMinimum": 0},
    },
}
_TAPS_SCHEMA = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_LAYOUT_SCHEMA = {"anyOf": [_TAPS_SCHEMA, {"enum": ["default", "shipped"]}]}
_FLAG_SCHEMA = {"type": ["boolean", "number", "string"]}


def _values_schema(item: dict[str, Any], *, ranges: bool = True) -> WithJsonSchema:
    listed = {"type": "array", "minItems": 1, "uniqueItems": True, "items": item}
    return WithJsonSchema({"anyOf": [listed, _RANGE_SCHEMA]} if ranges else listed)


_COUNT_SCHEMA = {"type": "integer", "minimum": 1}

StudyName = Annotated[
    str, PlainValidator(_study_name), WithJsonSchema({"type": "string", "pattern": _STUDY_NAME.pattern})
]
LayoutValue = Annotated[Layout, PlainValidator(_layout), WithJsonSchema(_LAYOUT_SCHEMA)]
Count = Annotated[int, PlainValidator(_count), WithJsonSchema(_COUNT_SCHEMA)]
CountOrNull = Annotated[
    int | None, PlainValidator(_count_or_null), WithJsonSchema({"anyOf": [_COUNT_SCHEMA, {"type": "null"}]})
]
CountOrAuto = Annotated[
    int | Literal["auto"], PlainValidator(_count_or_auto), WithJsonSchema({"anyOf": [_COUNT_SCHEMA, {"const": "auto"}]})
]
Swept = Annotated[FlagValue, PlainValidator(_flag_value), WithJsonSchema(_FLAG_SCHEMA)]
FlagName = Annotated[str, PlainValidator(_flag_name), WithJsonSchema({"type": "string", "pattern": _FLAG_NAME.pattern})]
EnvName = Annotated[str, PlainValidator(_env_name), WithJsonSchema({"type": "string", "pattern": _ENV_NAME.pattern})]
EnvValue = Annotated[str, PlainValidator(_env_value), WithJsonSchema({"type": "string"})]
Url = Annotated[str, PlainValidator(_url), WithJsonSchema({"type": "string", "pattern": "^https?://"})]
Version = Annotated[str, PlainValidator(_version), WithJsonSchema({"type": "string"})]
Prompts = Annotated[
    int | str, PlainValidator(_prompts), WithJsonSchema({"anyOf": [_COUNT_SCHEMA, {"type": "string", "minLength": 1}]})
]

Rate = Annotated[float, PlainValidator(_rate), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]
RateOrNull = Annotated[
    float | None,
    PlainValidator(_rate_or_null),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}),
]
_VALUES = (BeforeValidator(_expand_range), AfterValidator(_distinct))
Layouts = Annotated[tuple[LayoutValue, ...], AfterValidator(_distinct)]
Counts = Annotated[tuple[Count, ...], *_VALUES, _values_schema(_COUNT_SCHEMA)]
CountsOrNull = Annotated[
    tuple[CountOrNull, ...], *_VALUES, _values_schema({"anyOf": [_COUNT_SCHEMA, {"type": "null"}]})
]
Rates = Annotated[tuple[Rate, ...], BeforeValidator(_expand_range), AfterValidator(_not_twice)]
SweptValues = Annotated[tuple[Swept, ...], *_VALUES, _values_schema(_FLAG_SCHEMA)]
