"""Ending a closed-loop cell before its last prompt: the rule is asked now and then, beside the load."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

from actors.load.client import Sent
from actors.load.workload import Prompt
from results.observations import RequestRow

Decide = Callable[[Sequence[RequestRow]], str | None]
"""Why the cell may stop, from the requests finished so far; None to go on."""

_GROWTH = 0.1


class EarlyStop:
    """Collects what a cell's requests gave and asks `decide` about it. `reason` is set once it said stop.

    Asked when the finished requests have grown by a tenth, and by `concurrency` and four at least: so few looks that a
    lucky one is rare and that deciding costs nothing beside measuring. The rule works in a thread, as the client must
    not read its clock late for it; requests sent meanwhile are part of the cell.
    """

    def __init__(self, decide: Decide, concurrency: int) -> None:
        self._decide = decide
        self._step = max(4, concurrency)
        self._next = self._step
        self._rows: list[RequestRow] = []
        self._asking: asyncio.Task[None] | None = None
        self.reason: str | None = None

    def enough(self) -> bool:
        """Whether nothing more is to be sent."""
        return self.reason is not None

    def watched(self, send: Callable[[Prompt], Awaitable[Sent]]) -> Callable[[Prompt], Awaitable[Sent]]:
        """`send`, with every answer taken note of."""

        async def watching(prompt: Prompt) -> Sent:
            answer = await send(prompt)
            self._rows.append(answer.row)
            if len(self._rows) >= self._next and self._asking is None:
                self._asking = asyncio.create_task(self._ask())
            return answer

        return watching

    async def _ask(self) -> None:
        rows = tuple(self._rows)
        self._next = len(rows) + max(self._step, math.ceil(_GROWTH * len(rows)))
        self.reason = await asyncio.to_thread(self._decide, rows)
        self._asking = None

    async def close(self) -> None:
        """Wait for what is still being decided, whose answer no longer matters."""
        if self._asking is not None:
            await self._asking
