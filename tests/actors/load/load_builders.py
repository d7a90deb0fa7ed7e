"""Workloads for the load's tests."""

from __future__ import annotations

from typing import Any

from actors.load.workload import Workload, prompt_of


def numbered_workload(count: int, *, warmup_count: int = 0, **changes: Any) -> Workload:
    """`count` different prompts of 3 to 6 words; streamed, greedy, 24 tokens, one attempt."""
    prompts = tuple(prompt_of(f"prompt {number} wörds" + " more" * (number % 4)) for number in range(count))
    fields: dict[str, Any] = {
        "prompts": prompts,
        "warmup": tuple(prompt_of(f"warm {number}") for number in range(warmup_count)),
        "concurrency": (4,),
        "max_new_tokens": 24,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "request_timeout_s": 5.0,
        "max_attempts": 1,
    }
    return Workload(**{**fields, **changes})
