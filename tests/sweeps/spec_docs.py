"""The page docs/spec.md, made from the spec's own classes. `python tests/sweeps/spec_docs.py` writes it anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spec.md"
HEAD = """\
# The spec

One YAML file says what a sweep is. Only `target`, `draft` and `space` are needed:

```yaml
target: meta-llama/Llama-3.1-8B-Instruct
draft: /models/llama-3.1-8b-eagle3
space: {catalog: small}
```

Unknown keys, wrong types and values that cannot be meant are refused in one line that names file, line, key and what is
legal. Relative paths are relative to the spec file, also in `--set`. `--set key.path=YAML` replaces one value, for
example `--set 'space.tp_size=[1,2]'`. Editors complete and check a spec with `docs/spec.schema.json`
(`specsweep schema`).

Made from the code; after a change run `python tests/sweeps/spec_docs.py`.
"""
TAIL = """\
## Values of a dimension

A number dimension is a list (`[1, 3, 5]`) or a range (`{low: 1, high: 7, step: 2}`, both ends included). A layout is a
list of taps, in which 0 is the embedding output and i the output of block i counted from 1; `default` is what SGLang
chooses without ids in the draft's config, `shipped` what the draft's config says. `null` leaves a number to SGLang, and
only works for all three at once.
"""


def page() -> str:
    """All sections with their keys, values, defaults and meanings."""
    from sweeps.spec import json_schema

    schema = json_schema()
    sections = {"": schema}
    parts = [HEAD]
    for key, value in schema["properties"].items():
        references = _references(value)
        for reference in references:
            sections[key if reference == references[0] else f"{key}: {reference}"] = schema["$defs"][reference]
    for name, section in sections.items():
        title = f"## `{name.partition(':')[0]}`" if name else "## Keys"
        title += f", kind `{section['properties']['kind']['const']}`" if ":" in name else ""
        parts.append(f"{title}\n\n{section['description']}\n\n| key | values | default | meaning |\n|---|---|---|---|")
        required = section.get("required", [])
        for key, value in section["properties"].items():
            reference = _reference(value)
            meaning = value.get("description") or schema["$defs"][reference or ""]["description"]
            shown = "required" if key in required else _default(value, reference)
            parts.append(f"| `{key}` | {_values(value, reference)} | {shown} | {meaning} |".replace("  ", " "))
        parts.append("")
    parts.append(TAIL)
    return "\n".join(parts)


def _references(value: dict[str, Any]) -> list[str]:
    options = [value, *value.get("anyOf", []), *value.get("oneOf", [])]
    return [option["$ref"].rpartition("/")[2] for option in options if "$ref" in option]


def _reference(value: dict[str, Any]) -> str | None:
    return next(iter(_references(value)), None)


def _default(value: dict[str, Any], reference: str | None) -> str:
    if reference or "default" not in value or value["default"] is None:
        return ""
    default = value["default"]
    shown = {True: "true", False: "false"}.get(default, default) if isinstance(default, bool) else default
    return f"`{str(shown).replace('None', 'null')}`"


def _values(value: dict[str, Any], reference: str | None) -> str:
    if reference:
        return "see below"
    if "enum" in value or "const" in value:
        return ", ".join(f"`{item}`" for item in value.get("enum", [value.get("const")]))
    options = [option for option in value.get("anyOf", [value]) if option.get("type") != "null"]
    return " or ".join(dict.fromkeys(_type(option) for option in options))


def _type(option: dict[str, Any]) -> str:
    if option.get("type") == "array":
        return "list"
    if option.get("type") == "object":
        return "range" if "low" in option.get("properties", {}) else "mapping"
    if "enum" in option:
        return ", ".join(f"`{item}`" for item in option["enum"])
    if "const" in option:
        return f"`{option['const']}`"
    names = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = "".join(f", {word} {option[key]}" for key, word in words.items() if key in option)
    return names[option["type"]] + bounds if isinstance(option.get("type"), str) else "value"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
