"""The command line and the spec are interfaces: a change of either must be seen in a review."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cli_docs
import spec_docs
import yaml

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_on_the_command_line_is_current() -> None:
    assert cli_docs.PAGE.read_text() == cli_docs.page(), "run: python tests/sweeps/cli_docs.py"


def test_the_page_on_the_spec_is_current() -> None:
    assert spec_docs.PAGE.read_text() == spec_docs.page(), "run: python tests/sweeps/spec_docs.py"


def test_the_page_on_the_spec_has_every_bound() -> None:
    page = spec_docs.page()
    for row in ("`port` | whole number, at least 1, at most 65535", "`half_width` | number, above 0, below 1"):
        assert f"| {row} |" in page
    assert "| `baselines` | whole number, at least 1 or `auto` |" in page


def test_the_example_on_the_page_needs_nothing_else() -> None:
    example = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", spec_docs.PAGE.read_text(), re.DOTALL)[0])
    schema = json.loads((DOCS / "spec.schema.json").read_text())
    assert set(example) == set(schema["required"])


def test_every_command_with_json_is_documented() -> None:
    titles = "\n".join(line for line in (DOCS / "json.md").read_text().splitlines() if line.startswith("## "))
    sections = cli_docs.page().split("\n## specsweep ")[1:]
    with_json = [section.split("\n")[0] for section in sections if "  --json " in section]
    assert {"plan", "run", "status"} <= set(with_json)
    assert [name for name in with_json if f"`{name} --json`" not in titles] == []
