"""Thread binding and shared-memory all-reduce, which the published CPU kernels have and this stand-in has not."""

import os


def init_cpu_threads_env(cpu_ids: str) -> str:
    """Binds nothing."""
    return ""


def initialize(size: int, rank: int) -> None:
    """Says "no shared memory all-reduce here", so SGLang's workers talk over gloo."""
    os.environ["LOCAL_SIZE"] = "0"
