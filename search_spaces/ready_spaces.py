"""The catalogue of ready-made search spaces: YAML files beside this module, each with a comment on where it is from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from search_spaces.errors import InputError
from search_spaces.space import SearchSpace

CATALOG = Path(__file__).parent / "catalog"


def ready_space_names() -> tuple[str, ...]:
    """The names that `load_ready_space` knows, sorted."""
    return tuple(sorted(path.stem for path in CATALOG.glob("*.yaml")))


def load_ready_space(name: str) -> SearchSpace:
    """A space of the catalogue. InputError that lists the legal names when there is none of this name."""
    if name not in ready_space_names():
        raise InputError(f"space: {name!r} is not in the catalogue (legal: {', '.join(ready_space_names())})")
    return space_from_values(_read(CATALOG / f"{name}.yaml"), where=f"catalogue {name}")


def space_from_values(values: dict[str, Any], where: str) -> SearchSpace:
    """A space from plain lists under the keys of a spec's `space`; a layout is a list of taps or a label."""
    legal = ("layout", "num_steps", "eagle_topk", "num_draft_tokens", "tp_size", "flags")
    unknown = sorted(set(values) - set(legal))
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]} (legal: {', '.join(legal)})")
    flags = values.get("flags", {})
    return SearchSpace(
        layout=tuple(_label(layout) for layout in values.get("layout", ["shipped"])),
        num_steps=tuple(values.get("num_steps", [None])),
        eagle_topk=tuple(values.get("eagle_topk", [None])),
        num_draft_tokens=tuple(values.get("num_draft_tokens", [None])),
        tp_size=tuple(values.get("tp_size", [1])),
        flags=tuple((name, tuple(flags[name])) for name in sorted(flags)),
    )


def _label(layout: object) -> str:
    if isinstance(layout, list):
        return ",".join(str(tap) for tap in layout)
    return str(layout)


def _read(path: Path) -> dict[str, Any]:
    # YAML is needed for a catalogue name only; `plan` on a spec has read it already
    import yaml

    loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    if not isinstance(loaded, dict):
        raise InputError(f"{path.name}: not a mapping of a space's keys")
    return loaded
