"""Reading a spec: YAML and overrides in, a complete `SweepSpec` out, or one line that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces.checkpoint_folders import find_checkpoint
from search_spaces.errors import InputError
from search_spaces.typed_paths import is_there
from sweeps.spec_schema import SweepSpec
from sweeps.spec_source import SpecSource


def load_spec(path: Path, overrides: Sequence[str] = ()) -> SweepSpec:
    """`parse_spec`, and what it names is there: `target` and `draft` of the result are absolute checkpoint folders.

    InputError, with the advice to give an absolute path, when a model or a prompt file is missing on this machine.
    """
    source = SpecSource.read(path, overrides)
    spec = source.parse()
    prompts = spec.workload.prompts
    if isinstance(prompts, str) and prompts.startswith("/") and not is_there(Path(prompts)):
        raise source.refusal([(("workload", "prompts"), _missing(prompts, "no such file or folder"))])
    return spec.model_copy(
        update={key: _find_model(source, key, getattr(spec, key)) for key in ("target", "draft")},
    )


def parse_spec(path: Path, overrides: Sequence[str] = ()) -> SweepSpec:
    """Reads and checks a spec without asking that its models exist; relative paths become absolute.

    Relative means relative to the spec file, also in overrides. `overrides` are `key.path=YAML` texts, applied in order
    before the check. InputError is one line with the file and line, or the `--set`, the key path, the bad value and
    the legal ones.
    """
    return SpecSource.read(path, overrides).parse()


def relative_files(path: Path, overrides: Sequence[str] = ()) -> Mapping[str, Path]:
    """What a spec names by a path relative to itself, by key path, such as `target` or `workload.prompts`."""
    return SpecSource.read(path, overrides).relative_files


def dump_snapshot(spec: SweepSpec) -> bytes:
    """The complete spec as JSON, which `load_spec` reads back: equal bytes for equal specs."""
    return json.dumps(spec.model_dump(), indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def json_schema() -> dict[str, Any]:
    """The JSON schema of the YAML file, for editors."""
    schema = SweepSpec.model_json_schema()
    # the study's name defaults to the file's, which a schema cannot say
    schema["required"] = [key for key in schema["required"] if key != "study"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "specsweep spec"}


def _find_model(source: SpecSource, key: str, place: str) -> str:
    try:
        return str(find_checkpoint(place).absolute())
    except InputError as error:
        if Path(place).is_absolute() and not is_there(Path(place)):
            message = _missing(place, "no such folder")
        elif not Path(place).is_absolute():
            message = _missing(place, "neither a folder beside the spec nor a model in the local Hugging Face cache")
        else:
            message = str(error)
        raise source.refusal([((key,), message)]) from error


def _missing(place: str, what: str) -> str:
    return f"'{place}': {what}; give an absolute path that exists on the machine that runs the sweep"
