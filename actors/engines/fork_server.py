"""Imports SGLang once, then forks servers from itself: a start takes 3 s instead of 10. For the CPU only.

    python fork_server.py SOCKET

Runs under the engine's interpreter. Listens on SOCKET; each connection brings one JSON object (`args`, `environment`,
`log`, `status`, `scratch`, `grace_s`) with two descriptors: the owner's pipe and one for the guard's line. The forked
server is `sglang.launch_server` under a guard of its own, exactly as if it had been executed, but that its workers are
forked as well and inherit the imports. The environment of a request must equal this process's own in all that SGLang
reads while it is imported.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import random
import runpy
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

MAX_REQUEST_BYTES = 1_048_576


def load_guard() -> Any:
    """Our guard module, from the file beside this one: this interpreter need not have our package."""
    spec = importlib.util.spec_from_file_location("specsweep_guard", Path(__file__).with_name("guard.py"))
    if spec is None or spec.loader is None:
        raise ImportError("guard.py is missing beside fork_server.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def always_fork() -> None:
    """SGLang asks for spawned workers (entrypoints/engine.py); here they are forked."""
    set_start_method = multiprocessing.set_start_method

    def set_fork(method: str | None, force: bool = False) -> None:
        set_start_method("fork", force=True)

    multiprocessing.set_start_method = set_fork


def import_engine() -> None:
    """All that a server and its workers import, the model classes included."""
    # Scikit-learn, where another package brought it, costs a second and is only for assisted generation.
    sys.modules["sklearn"] = None  # type: ignore[assignment]
    import sglang.srt.entrypoints.http_server
    import sglang.srt.managers.detokenizer_manager
    import sglang.srt.managers.scheduler
    import sglang.srt.models.registry  # noqa: F401


def run_server(request: dict[str, Any]) -> None:
    """In the server's process: become `sglang.launch_server` with these arguments. Does not return."""
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # found anew from TMPDIR
    random.seed()
    sys.argv = ["sglang.launch_server", *request["args"]]
    code = 0
    try:
        runpy.run_module("sglang.launch_server", run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def become_guard(guard: Any, request: dict[str, Any], descriptors: list[int]) -> None:
    """In a fork: be the guard's launcher and guard, on the owner's descriptors. Does not return."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    guard.stand_guard(
        grace_s=request["grace_s"],
        log=request["log"],
        status=request["status"],
        scratch=request["scratch"],
        run_server=lambda: run_server(request),
    )
    os._exit(0)


def serve(path: str, guard: Any) -> None:
    """Answer requests for ever, one after the other."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen()
    os.rename(path + ".new", path)  # noqa: PTH104 - only now may anybody find it
    while True:
        connection, _ = listener.accept()
        content, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 2)
        while not content.endswith(b"\n") and (more := connection.recv(MAX_REQUEST_BYTES)):
            content += more
        launcher = os.fork()
        if launcher == 0:
            listener.close()
            connection.close()
            become_guard(guard, json.loads(content), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(launcher, 0)
        connection.close()


def main() -> None:
    sys.path.pop(0)  # this file's folder, whose modules must not shadow anybody's
    guard = load_guard()
    always_fork()
    import_engine()
    serve(sys.argv[1], guard)


if __name__ == "__main__":
    main()
