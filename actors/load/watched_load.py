"""A load run under watch: it ends early when the server is dead or answers nobody, and says why."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from actors.load.client import FailureReason, Sent
from actors.load.workload import Prompt
from results.failures import Failure, Phase

FailureNow = Callable[[], Failure | None]
Value = TypeVar("Value")
Loop = Callable[[Callable[[Prompt], Awaitable[Sent]]], Awaitable[list[Sent]]]

_NO_ANSWER: frozenset[FailureReason] = frozenset({"connection", "timeout"})
_DEATH_POLL_S = 0.2
_DEATH_GRACE_S = 3.0
_LAG_TICK_S = 0.05


class LagMeter:
    """How late this event loop wakes up: `longest_s` is the largest delay seen while `run` ran."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        while True:
            due_s = time.perf_counter() + _LAG_TICK_S
            await asyncio.sleep(_LAG_TICK_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - due_s)


async def run_load(
    loop: Loop,
    send: Callable[[Prompt], Awaitable[Sent]],
    *,
    patience: int,
    failure_now: FailureNow,
    phase: Phase,
    lag: LagMeter | None = None,
) -> list[Sent] | Failure:
    """Run the loop to its end, or until the server is dead or answers nobody. A returned list has a success in it.

    It answers nobody when `patience` requests, or as many as were in flight when that began if they were more, got no
    answer and none succeeded between them. A refusal is an answer: it ends nothing, however many there are.
    """
    patient = _Patience(send, patience)
    load = asyncio.ensure_future(loop(patient.send))
    death = asyncio.create_task(_death(failure_now))
    lost = asyncio.create_task(patient.lost.wait())
    meter = asyncio.create_task((lag or LagMeter()).run())
    try:
        await asyncio.wait((load, death, lost), return_when=asyncio.FIRST_COMPLETED)
        if load.done() and not any(answer.failed for answer in load.result()):
            return load.result()
        if death.done():
            return dataclasses.replace(death.result(), phase=phase)
        answers = patient.given_up or load.result()
        failure = _failure_of(answers, phase) if all(answer.failed for answer in answers) else None
        refused = any(answer.failed == "connection" for answer in answers)
        # Connections break before the guard has seen the server's end: the cause of death says more than their errors.
        await asyncio.wait((death,), timeout=_DEATH_GRACE_S if refused else 0)
        if death.done():
            return dataclasses.replace(death.result(), phase=phase)
        return failure or answers
    finally:
        await _cancelled(load, death, lost, meter)


async def unless_dead(work: Awaitable[Value], failure_now: FailureNow, phase: Phase) -> Value | Failure:
    """What `work` gives, or the cause of the server's death if that comes first."""
    task = asyncio.ensure_future(work)
    death = asyncio.create_task(_death(failure_now))
    try:
        await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else dataclasses.replace(death.result(), phase=phase)
    finally:
        await _cancelled(task, death)


class _Patience:
    """Sends requests; when too many got no answer since the last success, the failures are `given_up`, `lost` is set.

    Refusals neither count nor start the count anew: a server whose front end refuses long prompts may have lost the
    process that answers the others.
    """

    def __init__(self, send: Callable[[Prompt], Awaitable[Sent]], limit: int) -> None:
        self._send = send
        self._least = self._limit = limit
        self._in_flight = 0
        self._failed: list[Sent] = []
        self._silent = 0
        self.given_up: list[Sent] = []
        self.lost = asyncio.Event()

    async def send(self, prompt: Prompt) -> Sent:
        self._in_flight += 1
        answer = await self._send(prompt)
        self._note(answer)
        self._in_flight -= 1
        return answer

    def _note(self, answer: Sent) -> None:
        if answer.failed is None:
            self._failed, self._silent = [], 0
            return
        self._failed.append(answer)
        if answer.failed not in _NO_ANSWER:
            return
        if self._silent == 0:
            self._limit = max(self._least, self._in_flight)
        self._silent += 1
        if self._silent >= self._limit and not self.given_up:
            self.given_up = [*self._failed]
            self.lost.set()


async def _death(failure_now: FailureNow) -> Failure:
    """Return the cause of the server's death, when it comes."""
    while True:
        failure = failure_now()
        if failure is not None:
            return failure
        await asyncio.sleep(_DEATH_POLL_S)


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _failure_of(failed: Sequence[Sent], phase: Phase) -> Failure:
    """One failure for requests that all failed, named after the last one."""
    last = failed[-1]
    message = f"{len(failed)} requests in a row failed, the last with: {last.row.error}"
    return Failure(phase=phase, kind="timeout" if last.failed == "timeout" else "client", message=message)
