"""What the timed stand-in server answers and when: its plan, and everything that follows from plan and prompt alone."""

from __future__ import annotations

import itertools
import json
import math
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ENDINGS: dict[int | str, dict[str, Any]] = {
    "abort": {"type": "abort", "status_code": 503, "message": "out of room"},
    "nan": {"type": "stop", "matched": "NaN happened"},
}
WORDS = ("один", "zwei", "trois", "四", "five", "🦙", '"completion_tokens":7', "\\ \n")


@dataclass(frozen=True, kw_only=True)
class TimedPlan:
    """What the server does.

    The first token arrives `ttft_s` after the request did and every verify step (every token without speculation) takes
    `step_s`. With `acceptance` (conditional probability of position 1, 2, ... being accepted) a verify step
    commits one token more than the drafts it accepts, drawn per prompt from `seed`; `pattern` gives the accepted drafts
    of successive steps instead. `fail_first` lists what the first requests meet: an HTTP status, `hang`, `drop` (the
    connection is cut after the first chunk), `cut` (the stream ends cleanly in the middle), `abort`, `stream_error`,
    `nan`, `garbage`. `fail_all` is met by every request. `flush_refusals` first flushes are refused. With `spread`
    prompts differ: `nature_of` says how.
    """

    ttft_s: float = 0.02
    step_s: float = 0.005
    acceptance: tuple[float, ...] = ()
    pattern: tuple[int, ...] = ()
    num_draft_tokens: int = 6
    seed: int = 0
    jitter: float = 0.0
    spread: float = 0.0
    incremental: bool = False
    fail_first: tuple[int | str, ...] = ()
    fail_all: int | str | None = None
    flush_refusals: int = 0
    flush_status: int | None = None
    foreign_requests: int = 0
    loads: bool = True
    metrics: bool = True
    average_accept_length: float | None = None
    api_key: str | None = None
    die_after_requests: int | None = None

    @property
    def speculative(self) -> bool:
        return bool(self.acceptance or self.pattern)


@dataclass(frozen=True, kw_only=True)
class Script:
    """One answer: tokens committed by the prefill and each step, and the counters it reports."""

    commits: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return sum(self.commits)


@dataclass(frozen=True, kw_only=True)
class Nature:
    """What one prompt makes of the plan: its delays, its chances of acceptance, its share of the tokens asked for."""

    ttft_s: float
    step_s: float
    acceptance: tuple[float, ...]
    length: float


def nature_of(plan: TimedPlan, text: str) -> Nature:
    """The plan itself without `spread`; else delays and logarithms of chances are lognormal with that deviation (half
    of it for steps), and up to twice that share of the tokens is missing. The same for a text on a server of any
    speed."""
    if not plan.spread:
        return Nature(ttft_s=plan.ttft_s, step_s=plan.step_s, acceptance=plan.acceptance, length=1.0)
    draws = random.Random(f"{plan.seed} {text}")
    ttft, step, hardness = (math.exp(draws.gauss(0, spread)) for spread in (plan.spread, plan.spread / 2, plan.spread))
    return Nature(
        ttft_s=plan.ttft_s * ttft,
        step_s=plan.step_s * step,
        acceptance=tuple(chance**hardness for chance in plan.acceptance),
        length=1 - draws.random() * min(0.9, 2 * plan.spread),
    )


def script_of(plan: TimedPlan, text: str, max_new_tokens: int) -> Script:
    """The answer to a prompt, always the same. The last step's tokens are cut at the limit, its drafts are not."""
    draws, nature = random.Random(zlib.crc32(text.encode()) ^ plan.seed), nature_of(plan, text)
    limit = max(2, round(nature.length * max_new_tokens)) if plan.spread else max_new_tokens
    commits, accepted = [1], []
    while sum(commits) < limit:
        drafts = _accepted(plan, nature, draws, len(accepted))
        accepted.append(drafts)
        commits.append(min(drafts + 1, limit - sum(commits)))
    return Script(commits=tuple(commits), accepted=tuple(accepted))


def _accepted(plan: TimedPlan, nature: Nature, draws: random.Random, step: int) -> int:
    if plan.pattern:
        return plan.pattern[step % len(plan.pattern)]
    drafts = 0
    for probability in nature.acceptance:
        if draws.random() >= probability:
            break
        drafts += 1
    return drafts


def schedule_of(plan: TimedPlan, text: str, script: Script) -> Iterator[tuple[int, float]]:
    """The tokens of each step, and how long after the request's arrival they are due."""
    pace, nature = random.Random(text), nature_of(plan, text)
    due_s = nature.ttft_s
    for commit in script.commits:
        yield commit, due_s
        due_s += nature.step_s * (1 + plan.jitter * (2 * pace.random() - 1))


def histogram_of(accepted: tuple[int, ...]) -> list[int]:
    """How many steps accepted 0, 1, 2, ... drafts."""
    return [accepted.count(drafts) for drafts in range(max(accepted, default=0) + 1)]


def output_ids(text: str, count: int) -> list[int]:
    """The output's token ids, the same for a prompt at every setting, as greedy decoding gives."""
    draws = random.Random(zlib.crc32(text.encode()))
    return [draws.randrange(1000) for _ in range(count)]


class Answer:
    """One answer as it goes out: when each step is due, and what its events hold.

    Events are cut out of what was encoded once: the double has to serve many streams without being the slow part.
    """

    def __init__(self, plan: TimedPlan, text: str, script: Script, cached: int, *, fault: int | str | None) -> None:
        self.plan = plan
        self.text = text
        self.script = script
        self.fault = fault
        ids = output_ids(text, script.tokens)
        self._words, self._word_ends = _joined(
            [json.dumps(WORDS[token % len(WORDS)], ensure_ascii=False)[1:-1] for token in ids], " "
        )
        self._ids, self._id_ends = _joined([str(token) for token in ids], ",")
        self._meta = f'"prompt_tokens":{len(text.split())},"cached_tokens":{cached}'

    def schedule(self, start_s: float) -> Iterator[tuple[int, float]]:
        """The tokens of each step and the time at which they are due."""
        return ((commit, start_s + due_s) for commit, due_s in schedule_of(self.plan, self.text, self.script))

    def event(self, first: int, sent: int) -> bytes:
        """The event with tokens `first` to `sent` as JSON; the last one has the counters and the reason of the end."""
        if self.fault == "stream_error":
            return b'{"error":{"message":"no room","code":503}}'
        words = self._words[self._word_ends[first] : self._word_ends[sent]]
        ids = self._ids[self._id_ends[first] : self._id_ends[sent]].lstrip(b",")
        meta = f'{{"id":"0","completion_tokens":{sent},{self._meta},{self._end(sent)}}}'.encode()
        return b'{"text":"' + words + b'","output_ids":[' + ids + b'],"meta_info":' + meta + b"}"

    def _end(self, sent: int) -> str:
        """The members of `meta_info` that only the last event has a value for."""
        if sent < self.script.tokens:
            return '"finish_reason":null'
        end: dict[str, Any] = {"finish_reason": ENDINGS.get(self.fault or "", {"type": "length", "length": sent})}
        if self.plan.speculative:
            accepted = self.script.accepted
            end["spec_verify_ct"] = len(accepted)
            end["spec_num_proposed_drafts"] = len(accepted) * (self.plan.num_draft_tokens - 1)
            end["spec_num_correct_drafts"] = sum(accepted)
            end["spec_correct_drafts_histogram"] = histogram_of(accepted)
        return json.dumps(end)[1:-1]


def _joined(parts: list[str], separator: str) -> tuple[bytes, list[int]]:
    """The parts joined as UTF-8, and where the first 0, 1, 2, ... of them end."""
    encoded = [((separator if index else "") + part).encode() for index, part in enumerate(parts)]
    return b"".join(encoded), [0, *itertools.accumulate(len(part) for part in encoded)]
