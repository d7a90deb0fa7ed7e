"""Where load runs: uvloop's event loop when it is installed (SGLang brings it along), else asyncio's own.

A stream costs little but its wake-ups, one for every token; uvloop's are cheaper (`benchmarks/client_cost.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    import uvloop
except ImportError:
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

Value = TypeVar("Value")


def run_to_end(work: Coroutine[Any, Any, Value]) -> Value:
    """As `asyncio.run`: a new loop, closed afterwards."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
