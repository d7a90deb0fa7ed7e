"""The requests of a trace: every prompt once, with the server flushed when all are answered.

A server that refuses one prompt (HTTP 4xx, such as for a prompt that leaves no room in the context) goes on to answer
the others. One that is silent about too many in a row, or says nothing of use, ends the trace.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from actors.load.client import FailureReason
from actors.load.server_state import flush_when_idle
from actors.load.watched_load import FailureNow
from actors.load.workload import Prompt, Workload
from results.failures import Failure

FLUSH_TIMEOUT_S = 60.0
LEAST_PATIENCE = 3
DEATH_GRACE_S = 3.0
"""Connections break before the guard has seen the server's end."""
_DEATH_POLL_S = 0.2
_TRY_AGAIN_LATER = (408, 429)


@dataclass(frozen=True, kw_only=True)
class TracedAnswer:
    """What one prompt was answered, under the id by which the trace knows it."""

    prompt: Prompt
    request_id: str
    prompt_tokens: int
    output_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class NoAnswer:
    """A prompt without an answer, and why."""

    prompt: Prompt
    reason: FailureReason
    why: str

    @property
    def problem(self) -> str:
        return f"not traced: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Every prompt is in one of the three. `refused` ones would be refused again; `broken` ones may be answered yet.

    `given_up` is why the server was sent nothing more, if it was not.
    """

    answers: tuple[TracedAnswer, ...]
    refused: tuple[NoAnswer, ...]
    broken: tuple[NoAnswer, ...]
    given_up: Failure | None = None


async def ask_prompts(
    prompts: Sequence[Prompt],
    *,
    base_url: str,
    workload: Workload,
    concurrency: int,
    num_steps: int,
    name: str,
    failure_now: FailureNow,
    broken_before: Collection[str] = (),
) -> Answers | Failure:
    """Send every prompt, at most `concurrency` at once, and flush the server, so that their trace is on the disk.

    Request ids are those of the prompts with `name` behind them. A Failure when the server died, or when it answers
    none and refuses not all. The rest is not asked for, and the server is `given_up`, once it did not answer
    `concurrency` requests in a row (at least LEAST_PATIENCE).
    Prompts (ids) that were `broken_before` say nothing about the server if they break again.
    """
    timeout = aiohttp.ClientTimeout(total=workload.request_timeout_s)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        asking = _Asking(
            session,
            base_url,
            workload,
            num_steps,
            name,
            patience=max(concurrency, LEAST_PATIENCE),
            broken_before=broken_before,
        )
        gate = asyncio.Semaphore(concurrency)
        asked = await asyncio.gather(*(asking.ask(gate, prompt) for prompt in prompts))
        found = Answers(
            answers=tuple(one for one in asked if isinstance(one, TracedAnswer)),
            refused=tuple(one for one in asked if isinstance(one, NoAnswer) and one.reason == "refused"),
            broken=tuple(one for one in asked if isinstance(one, NoAnswer) and one.reason != "refused"),
        )
        disconnected = any(one.reason == "connection" for one in asking.broken)
        failure = await _death(failure_now, DEATH_GRACE_S if disconnected else 0.0) if asking.broken else None
        broken = [one for one in asking.broken if one.prompt.prompt_id not in broken_before]
        if failure is None and broken and not found.answers:
            failure = _failure(broken)
        if failure is None:
            trouble = await flush_when_idle(session, base_url, timeout_s=FLUSH_TIMEOUT_S)
            if trouble:
                message = _one_line(f"the traced server did not flush: {trouble}")
                died = await _death(failure_now, DEATH_GRACE_S)
                failure = died or Failure(phase="measure", kind="client", message=message)
    if failure is not None:
        return dataclasses.replace(failure, phase="measure")
    return dataclasses.replace(found, given_up=_failure(broken) if asking.has_given_up else None)


class _Asking:
    """Requests of one batch. `broken` are those that failed without a refusal, in the order of their ends; after too
    many in a row it `has_given_up` for good, whatever comes of those in flight, and the rest is not sent."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        workload: Workload,
        num_steps: int,
        name: str,
        *,
        patience: int,
        broken_before: Collection[str],
    ) -> None:
        self._session, self._url, self._workload = session, base_url + workload.endpoint, workload
        self._num_steps, self._name, self._patience = num_steps, name, patience
        self._broken_before = broken_before
        self._in_a_row = 0
        self.broken: list[NoAnswer] = []
        self.has_given_up = False

    async def ask(self, gate: asyncio.Semaphore, prompt: Prompt) -> TracedAnswer | NoAnswer:
        """Some tokens more than the answer has: the last round's drafts are judged by what would have followed.

        Where the server refuses that, once more without them: the drafts of the last round then count as far as the
        answer goes, which changes no number of rounds.
        """
        async with gate:
            if self.has_given_up:
                return NoAnswer(prompt=prompt, reason="connection", why="not sent")
            tokens = self._workload.max_new_tokens
            answer = await self._send(prompt, f"{prompt.prompt_id}-{self._name}", tokens + self._num_steps)
            if isinstance(answer, NoAnswer) and answer.reason == "refused":
                answer = await self._send(prompt, f"{prompt.prompt_id}-{self._name}-again", tokens)
            if isinstance(answer, TracedAnswer):
                self._in_a_row = 0
            elif answer.reason != "refused":
                self.broken.append(answer)
                self._in_a_row += prompt.prompt_id not in self._broken_before
                self.has_given_up = self.has_given_up or self._in_a_row >= self._patience
            return answer

    async def _send(self, prompt: Prompt, request_id: str, tokens: int) -> TracedAnswer | NoAnswer:
        body = {
            "text": prompt.text,
            "rid": request_id,
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
        }
        try:
            async with self._session.post(self._url, json=body) as response:
                text = await response.text(errors="replace")
            if response.status != 200:
                refused = response.status < 500 and response.status not in _TRY_AGAIN_LATER
                why = f"HTTP {response.status}: {text[:200]}"
                return NoAnswer(prompt=prompt, reason="refused" if refused else "broken", why=_one_line(why))
            return _answer(prompt, request_id, json.loads(text))
        except TimeoutError:
            why = f"no answer within {self._workload.request_timeout_s:g} s"
            return NoAnswer(prompt=prompt, reason="timeout", why=why)
        except (aiohttp.ClientError, OSError) as problem:
            why = _one_line(f"connection: {problem or type(problem).__name__}")
            return NoAnswer(prompt=prompt, reason="connection", why=why)
        except (ValueError, KeyError, TypeError) as problem:
            why = _one_line(f"unreadable answer: {problem or type(problem).__name__}")
            return NoAnswer(prompt=prompt, reason="broken", why=why)


def _answer(prompt: Prompt, request_id: str, content: dict[str, Any]) -> TracedAnswer:
    return TracedAnswer(
        prompt=prompt,
        request_id=request_id,
        prompt_tokens=int(content["meta_info"]["prompt_tokens"]),
        output_ids=tuple(content["output_ids"]),
    )


async def _death(failure_now: FailureNow, grace_s: float) -> Failure | None:
    """The cause of the server's death, waited for this long."""
    deadline = time.monotonic() + grace_s
    while (failure := failure_now()) is None and time.monotonic() < deadline:
        await asyncio.sleep(_DEATH_POLL_S)
    return failure


def _failure(broken: Sequence[NoAnswer]) -> Failure:
    message = f"{len(broken)} traced requests failed, the last with: {broken[-1].why}"
    return Failure(phase="measure", kind="timeout" if broken[-1].reason == "timeout" else "client", message=message)


def _one_line(text: str) -> str:
    return " ".join(text.split())
