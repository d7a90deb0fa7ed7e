"""Interpreters and packages that start the stand-in for SGLang (`fake_sglang`) instead."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().with_name("fake_sglang.py")


def make_fake_python(folder: Path) -> Path:
    """An executable that stands for an interpreter with SGLang in it; give it as `engine.python`."""
    path = folder / "fake_python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{PROGRAM}" "$@"\n')
    path.chmod(0o755)
    return path


def make_fake_package(folder: Path) -> Path:
    """A folder for PYTHONPATH with a package `sglang` whose `launch_server` is this stand-in, for forked servers."""
    modules = ("entrypoints.http_server", "managers.detokenizer_manager", "managers.scheduler", "models.registry")
    for module in modules:
        path = folder.joinpath("sglang", "srt", *module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for package in (folder / "sglang", *(path for path in (folder / "sglang").rglob("*") if path.is_dir())):
        (package / "__init__.py").touch()
    here = str(PROGRAM.parent)
    program = f"import sys\nsys.path.insert(0, {here!r})\nfrom fake_sglang import serve\nserve(sys.argv[1:])\n"
    (folder / "sglang" / "launch_server.py").write_text(program)
    return folder
