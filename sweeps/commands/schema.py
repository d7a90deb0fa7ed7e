"""`specsweep schema`."""

from __future__ import annotations

from sweeps.commands.options import print_json


def schema() -> None:
    """Print the JSON schema of the spec, for editors.

    With the YAML extension of an editor, put this on a spec's first line:

    # yaml-language-server: $schema=PATH-OR-URL-OF-THE-SCHEMA
    """
    from sweeps.spec import json_schema

    print_json(json_schema())
