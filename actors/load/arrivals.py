"""When requests are sent: Poisson arrivals for an open loop, and the two loops themselves."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def poisson_arrivals(count: int, rate: float, seed: int) -> tuple[float, ...]:
    """`count` arrival times in seconds of a Poisson process of `rate` per second, the first at 0.

    Gaps are exponential with mean 1 / rate. The same seed gives the same times scaled by 1 / rate at every rate, so
    two rates differ in nothing but the rate.
    """
    gaps = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    times = [0.0]
    for _ in range(count - 1):
        times.append(times[-1] + gaps.expovariate(1.0) / rate)
    return tuple(times[:count])


async def closed_loop(
    items: Sequence[Item],
    concurrency: int,
    send: Callable[[Item], Awaitable[Answer]],
    *,
    enough: Callable[[], bool] = lambda: False,
) -> list[Answer]:
    """Send every item once, `concurrency` at a time: as one is answered the next is sent. Answers in items' order.

    Once `enough` says so nothing more is sent; what is on its way is still answered, so the answers are those of the
    first items.
    """
    answers: dict[int, Answer] = {}
    waiting = iter(enumerate(items))

    async def work() -> None:
        for index, item in waiting:
            answers[index] = await send(item)
            if enough():
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(items))):
            group.create_task(work())
    return [answers[index] for index in sorted(answers)]


async def open_loop(
    items: Sequence[Item], arrivals_s: Sequence[float], send: Callable[[Item], Awaitable[Answer]]
) -> list[Answer]:
    """Send item i at `arrivals_s[i]` after the start whatever is still unanswered. Answers in items' order.

    Times are absolute: a late wake-up delays one request and does not push back the ones after it.
    """
    start_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for item, arrival_s in zip(items, arrivals_s, strict=True):
            await _sleep_until(start_s + arrival_s)
            tasks.append(group.create_task(_sent(send, item)))
    return [task.result() for task in tasks]


async def _sleep_until(due_s: float) -> None:
    """Until `time.perf_counter` says so; an event loop's own clock and timers may count whole milliseconds."""
    while (left_s := due_s - time.perf_counter()) > 0:
        await asyncio.sleep(left_s)


async def _sent(send: Callable[[Item], Awaitable[Answer]], item: Item) -> Answer:
    return await send(item)
