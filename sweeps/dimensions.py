"""A space as Optuna sees it: named dimensions of plain values, to settings and back. Layouts are strings. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.config import FlagValue, Setting
from search_spaces.space import SearchSpace

Value = None | bool | int | float | str
Params = dict[str, Value]

FLAG_PREFIX = "flag."
_NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")


def dimensions_of(space: SearchSpace) -> dict[str, tuple[Value, ...]]:
    """Every dimension's values by name, in the order in which they are stored; further flags as `flag.NAME`."""
    dimensions: dict[str, tuple[Value, ...]] = {
        "tp_size": space.tp_size,
        "layout": space.layout,
        "num_steps": space.num_steps,
        "eagle_topk": space.eagle_topk,
        "num_draft_tokens": space.num_draft_tokens,
    }
    return dimensions | {FLAG_PREFIX + name: values for name, values in space.flags}


def setting_of(params: Mapping[str, Value]) -> Setting:
    """The setting that a complete set of parameters stands for. KeyError when a dimension is missing."""
    flags: dict[str, FlagValue] = {}
    for name, value in params.items():
        if name.startswith(FLAG_PREFIX) and value is not None:
            flags[name.removeprefix(FLAG_PREFIX)] = value
    steps, topk, tokens = (_whole(name, params[name]) for name in _NUMBERS)
    tp_size = _whole("tp_size", params["tp_size"])
    if tp_size is None:
        raise ValueError("tp_size must be given")
    return Setting(
        layout=str(params["layout"]),
        num_steps=steps,
        eagle_topk=topk,
        num_draft_tokens=tokens,
        tp_size=tp_size,
        flags=tuple(sorted(flags.items())),
    )


def params_of(setting: Setting) -> Params:
    """The parameters under which a setting is stored."""
    params: Params = {
        "tp_size": setting.tp_size,
        "layout": setting.layout,
        "num_steps": setting.num_steps,
        "eagle_topk": setting.eagle_topk,
        "num_draft_tokens": setting.num_draft_tokens,
    }
    return params | {FLAG_PREFIX + name: value for name, value in setting.flags}


def contains(space: SearchSpace, setting: Setting) -> bool:
    """True when every value of the setting is among those of its dimension, and no dimension is missing."""
    dimensions, params = dimensions_of(space), params_of(setting)
    # True == 1 in Python, but they are two values of a flag
    return dimensions.keys() == params.keys() and all(
        any(type(value) is type(params[name]) and value == params[name] for value in values)
        for name, values in dimensions.items()
    )


def _whole(name: str, value: Value) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return value
