"""A Ray of its own process for tests: prints its address, runs until its standard input closes."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = """
import sys
import ray
ray.init(address="local", num_cpus=8, num_gpus=8, include_dashboard=False, object_store_memory=80 * 2**20,
         log_to_driver=False, logging_level="ERROR")
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""
QUIET = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_AUTH_MODE": "token", "RAY_worker_niceness": "0"}


@contextmanager
def ray_head() -> Iterator[str]:
    """Eight CPUs and eight GPUs that exist on paper only. Sets the token in this process's environment, for drivers."""
    before = {name: os.environ.get(name) for name in (*QUIET, "RAY_AUTH_TOKEN", "CUDA_VISIBLE_DEVICES")}
    os.environ.update(QUIET | {"RAY_AUTH_TOKEN": secrets.token_hex(32)})
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    tests = Path(__file__).parent
    # workers import what travels to them by name
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
