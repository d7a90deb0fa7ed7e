"""Where a checkpoint lies: a folder, or a repo id looked up in the local Hugging Face cache. No network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from search_spaces.errors import InputError
from search_spaces.typed_paths import expanded, is_there

_REPO_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")


def find_checkpoint(place: str | Path, environment: Mapping[str, str] | None = None) -> Path:
    """The folder that holds `config.json` for a path or a repo id (`org/name`, `org/name@revision`).

    A folder of the Hugging Face cache (`models--org--name`) stands for its revision `main`, or for the only snapshot.
    The cache is found as `huggingface_hub` finds it (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME). Raises `InputError`.
    """
    path = expanded(place)
    if is_there(path):
        if path.name == "config.json" and path.is_file():
            return path.parent
        if path.is_dir():
            return _snapshot(path, None) if (path / "snapshots").is_dir() else path
        raise InputError(f"{place}: a file, not a checkpoint folder with config.json")
    if path.is_absolute() or not _REPO_ID.fullmatch(str(place)):
        raise InputError(f"{place}: no such checkpoint folder")
    name, _, revision = str(place).partition("@")
    cache = _cache_folder(os.environ if environment is None else environment)
    folder = cache / ("models--" + name.replace("/", "--"))
    if not is_there(folder):
        raise InputError(f"{place}: neither a folder nor a model in the local Hugging Face cache ({cache})")
    return _snapshot(folder, revision or None)


def _cache_folder(environment: Mapping[str, str]) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return expanded(environment[name])
    home = environment.get("HF_HOME") or str(Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return expanded(home) / "hub"


def _snapshot(folder: Path, revision: str | None) -> Path:
    snapshots = sorted(path.name for path in (folder / "snapshots").glob("*") if path.is_dir())
    reference = folder / "refs" / (revision or "main")
    if reference.is_file():
        commit = reference.read_text(encoding="utf-8", errors="replace").strip()
        if commit in snapshots:
            return folder / "snapshots" / commit
    elif revision is None and len(snapshots) == 1:
        return folder / "snapshots" / snapshots[0]
    elif revision is not None:
        matches = [name for name in snapshots if name.startswith(revision)]
        if len(matches) == 1:
            return folder / "snapshots" / matches[0]
    known = ", ".join(snapshots) or "none"
    raise InputError(f"{folder}: revision {revision or 'main'} has no snapshot in the cache (snapshots there: {known})")
