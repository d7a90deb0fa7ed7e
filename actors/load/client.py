"""The client: one request to `/generate` becomes one row, with every attempt counted and no failure hidden."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp

from actors.load.generate_stream import BrokenStreamError, GenerateStream
from actors.load.http_post import Address, post, request_head
from actors.load.http_response import BadResponseError, Span, joined
from actors.load.json_codec import decode_json, encode_json
from actors.load.request_rows import answered_row, failed_row
from actors.load.workload import Prompt, Workload
from results.observations import RequestRow
from search_spaces.errors import EnvironmentProblem

logger = logging.getLogger(__name__)

FailureReason = Literal["timeout", "connection", "refused", "broken"]

_BACKOFF_S = 0.2


class AttemptError(Exception):
    """One attempt failed. `again` says whether another one could succeed; `reason` is what kind of failure it was."""

    def __init__(self, reason: FailureReason, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.again = again


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """A finished request: its row, and the reason of every attempt that failed, in order.

    `failed` is the reason of the last one when the whole request failed, that is when `row.error` is set.
    """

    row: RequestRow
    attempt_failures: tuple[FailureReason, ...]

    @property
    def failed(self) -> FailureReason | None:
        return self.attempt_failures[-1] if self.row.error is not None else None


class CellClock:
    """Seconds since the first request of a cell was sent, from a monotonic clock."""

    def __init__(self) -> None:
        self._origin: float | None = None

    def now_s(self) -> float:
        return self.seconds_at([time.perf_counter()])[0]

    def seconds_at(self, counters_s: Sequence[float]) -> list[float]:
        """The same for values that `time.perf_counter` had, in the order of time."""
        if self._origin is None:
            self._origin = counters_s[0]
        origin_s = self._origin
        return [counter_s - origin_s for counter_s in counters_s]


class GenerateClient:
    """Sends prompts of a workload to one server. An async context manager that owns its connections.

    EnvironmentProblem when the workload names an API key's environment variable that is not set.
    """

    def __init__(self, base_url: str, workload: Workload) -> None:
        self._address = Address.of(base_url.rstrip("/") + workload.endpoint)
        self._workload = workload
        self._headers = {"Content-Type": "application/json", **authorization(workload.api_key_env)}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """A session for the other endpoints of the same server. RuntimeError outside the context."""
        if self._session is None:
            raise RuntimeError("the client is used outside its context")
        return self._session

    async def send(self, prompt: Prompt, clock: CellClock, *, max_new_tokens: int | None = None) -> Sent:
        """Send one prompt, trying again up to the workload's `max_attempts`.

        The row's times are those of the last attempt, which is the successful one if any was, but for `first_sent_s`;
        `attempts` counts all. Never raises for a failed request: the row then has an `error`.
        """
        body = encode_json(
            {
                "text": prompt.text,
                "sampling_params": {
                    "temperature": self._workload.temperature,
                    "max_new_tokens": max_new_tokens or self._workload.max_new_tokens,
                    "ignore_eos": self._workload.ignore_eos,
                },
                "stream": self._workload.stream,
            }
        )
        failures: list[FailureReason] = []
        first_sent_s = sent_s = clock.now_s()
        while True:
            stream = GenerateStream()
            try:
                answer = await self._attempt(body, stream, clock)
            except AttemptError as error:
                failures.append(error.reason)
                logger.debug("prompt %s, attempt %d: %s", prompt.prompt_id, len(failures), error)
                if not error.again or len(failures) >= self._workload.max_attempts:
                    row = failed_row(
                        prompt.prompt_id,
                        stream,
                        sent_s=sent_s,
                        first_sent_s=first_sent_s,
                        now_s=clock.now_s(),
                        attempts=len(failures),
                        error=str(error),
                    )
                    return Sent(row=row, attempt_failures=tuple(failures))
                await asyncio.sleep(_BACKOFF_S * 2 ** (len(failures) - 1))
                sent_s = clock.now_s()
                continue
            row = answered_row(
                prompt.prompt_id,
                stream,
                answer,
                sent_s=sent_s,
                first_sent_s=first_sent_s,
                now_s=clock.now_s(),
                attempts=len(failures) + 1,
            )
            return Sent(row=row, attempt_failures=tuple(failures))

    async def _attempt(self, body: bytes, stream: GenerateStream, clock: CellClock) -> Mapping[str, Any]:
        """The final event of one attempt; AttemptError for anything that is not a complete answer."""
        whole = bytearray()

        def feed(spans: Iterable[Span], counters_s: Sequence[float]) -> None:
            if self._workload.stream:
                stream.feed_each(spans, clock.seconds_at(counters_s))
            else:
                whole.extend(joined(spans))

        try:
            async with asyncio.timeout(self._workload.request_timeout_s):
                head = request_head(self._address, self._headers, len(body))
                status, refusal = await post(self._address, head, body, feed, time.perf_counter)
            if status != 200:
                raise _refusal(status, refusal)
            return _complete(stream) if self._workload.stream else _checked(decode_json(bytes(whole)))
        except TimeoutError as error:
            message = f"no complete answer within {self._workload.request_timeout_s:g} s"
            raise AttemptError("timeout", message, again=True) from error
        except (BadResponseError, OSError) as error:
            raise AttemptError(
                "connection", _one_line(f"connection: {error or type(error).__name__}"), again=True
            ) from error
        except (BrokenStreamError, ValueError, KeyError, TypeError) as error:
            raise AttemptError("broken", _one_line(f"unreadable answer: {error}"), again=True) from error


def authorization(api_key_env: str | None) -> dict[str, str]:
    """The header that carries the API key kept in this environment variable; none when no variable is named.

    EnvironmentProblem when it is not set, or holds what cannot be sent as it is: the error for that would quote it.
    """
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env)
    if not key:
        raise EnvironmentProblem(f"the environment variable {api_key_env}, which should hold the API key, is not set")
    if not (key.isascii() and key.isprintable()):
        raise EnvironmentProblem(
            f"the API key in {api_key_env} holds a line break or another character that no key can have"
        )
    return {"Authorization": f"Bearer {key}"}


def _refusal(status: int, body: bytes) -> AttemptError:
    text = _one_line(body.decode("utf-8", "replace"))
    return AttemptError("refused", f"HTTP {status}: {text}", again=status >= 500 or status in (408, 429))


def _complete(stream: GenerateStream) -> Mapping[str, Any]:
    answer = _checked(stream.final())
    if not stream.done and answer["meta_info"].get("finish_reason") is None:
        raise AttemptError("broken", "the stream ended in the middle", again=True)
    return answer


def _checked(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer, unless it is an error in an answer's clothes: an error event, an abort, a stop at NaN logits."""
    if "error" in answer:
        error = answer["error"] if isinstance(answer["error"], dict) else {"message": answer["error"]}
        code = error.get("code")
        again = isinstance(code, int) and code >= 500
        raise AttemptError("refused", _one_line(f"error in the stream: {error.get('message')}"), again=again)
    meta = answer["meta_info"]
    for name in ("prompt_tokens", "completion_tokens"):
        if not isinstance(meta.get(name), int):
            raise BrokenStreamError(f"meta_info has no {name}")
    finish = meta.get("finish_reason")
    if isinstance(finish, dict) and finish.get("type") == "abort":
        raise AttemptError("refused", _one_line(f"aborted by the server: {finish.get('message')}"), again=True)
    if isinstance(finish, dict) and finish.get("matched") == "NaN happened":
        raise AttemptError("broken", "the server stopped at NaN logits", again=False)
    return answer


def _one_line(text: str, limit: int = 300) -> str:
    return " ".join(text.split())[:limit] or "no message"
