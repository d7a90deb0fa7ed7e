"""`sglang.launch_server` with its workers forked instead of spawned: they inherit the imports, 8 s of start-up each.

    python fork_server.py [arguments of sglang.launch_server]

For the CPU only: a forked process cannot use CUDA.
"""

from __future__ import annotations

import multiprocessing
import runpy
import sys
from typing import Any


def main() -> None:
    set_start_method = multiprocessing.set_start_method

    def set_fork(method: str | None = None, force: bool = False) -> Any:
        return set_start_method("fork", force=True)

    multiprocessing.set_start_method = set_fork  # SGLang asks for spawn: entrypoints/engine.py
    import sglang.srt.managers.detokenizer_manager
    import sglang.srt.managers.scheduler  # noqa: F401 - imported before the fork

    sys.path.pop(0)  # this file's folder, whose modules must not shadow anybody's
    sys.argv[0] = "sglang.launch_server"
    runpy.run_module("sglang.launch_server", run_name="__main__")


if __name__ == "__main__":
    main()
