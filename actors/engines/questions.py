"""Runs under the engine's interpreter and answers one question with one line of JSON on standard output.

    python questions.py find       {"version": "0.5.23" or null, "stand_ins": [...]}
    python questions.py resolve    {"rows": [{"error": ... or null, "args": {...}}, ...]} or {"error": ...}

`resolve` reads from standard input a list of argument lists. Standard library only, and Python 3.9 at least, since that
interpreter may be older than ours.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import json
import sys
from typing import Any


def find() -> dict[str, Any]:
    """SGLang's version, and what a CPU server would miss. Imports nothing of SGLang."""
    try:
        version: str | None = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        version = None
    stand_ins = [name for name in ("triton", "torchvision") if importlib.util.find_spec(name) is None]
    if not _has_cpu_kernels():
        stand_ins.append("sgl_kernel")
    return {"version": version, "stand_ins": sorted(stand_ins)}


def _has_cpu_kernels() -> bool:
    """A published `sgl_kernel` may be there and hold CUDA code only: what counts is what it registers."""
    if importlib.util.find_spec("sgl_kernel") is None:
        return False
    try:
        import sgl_kernel  # noqa: F401
        import torch

        return hasattr(torch.ops.sgl_kernel, "decode_attention_cpu")
    except Exception:  # whatever a foreign binary raises while it loads, it is of no use here
        return False


def resolve(settings: list[list[str]]) -> dict[str, Any]:
    """SGLang's own argument resolution, as `sglang.launch_server` runs it before it starts anything."""
    try:
        from sglang.srt.server_args import prepare_server_args
    except Exception as problem:  # a missing dependency, or a release that has no such function
        return {"error": _line(problem)}
    rows: list[dict[str, Any]] = []
    for words in settings:
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):
                args = prepare_server_args(words)
                args.resolve_once()
                values = args.resolved_dict()  # reading `args` itself would give what was asked
        except SystemExit:
            complaint = (errors.getvalue().strip().splitlines() or ["refused"])[-1]
            rows.append({"error": complaint, "args": {}})
        except Exception as problem:  # any exception here is SGLang's way of refusing these arguments
            rows.append({"error": _line(problem), "args": {}})
        else:
            rows.append({"error": None, "args": {k: v for k, v in values.items() if _is_plain(v)}})
    return {"rows": rows}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _line(problem: BaseException) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())


def main() -> None:
    sys.path.pop(0)  # this file's folder, whose modules must not shadow anybody's
    question = sys.argv[1]
    stdout, sys.stdout = sys.stdout, sys.stderr  # what imports print must not end up in the answer
    answer = find() if question == "find" else resolve(json.load(sys.stdin))
    print(json.dumps(answer), file=stdout)


if __name__ == "__main__":
    main()
