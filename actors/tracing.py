"""Drives a trace on a running server: every prompt's text and candidate pools, into a trace folder, prompt by prompt.

Prompts go out in batches, each into a segment file of its own. A batch is flushed to the disk and checked before its
prompts are noted as done, so a trace that was interrupted goes on after the last finished batch.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from actors.load.workload import Prompt, Workload
from actors.sglang_plugin.orders import TraceOrder
from actors.trace_requests import Answers, NoAnswer, TracedAnswer, ask_prompts
from results.failures import Failure, Kind
from results.observations import LaunchObservation
from results.pool_trace_file import PoolTraceFile
from results.topk_ties import TieRule
from results.traces import (
    TracedPrompt,
    TraceFacts,
    append_prompts,
    missing_positions,
    parallel_flags,
    read_prompts,
    trace_flags,
    write_facts,
)
from search_spaces.config import EngineConfig, Triple
from search_spaces.errors import InputError

LOG = logging.getLogger(__name__)

MAX_PASSES = 3
"""How often a prompt is asked for before it is given up. Once its text is known, no poison can hit it."""


class TracingEngine(Protocol):
    """What a trace needs of an engine; `SwitchingServer` has it."""

    @property
    def base_url(self) -> str: ...

    def trace(self, config: EngineConfig, order: TraceOrder) -> LaunchObservation | Failure: ...

    def failure_now(self) -> Failure | None: ...


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """What to trace: `config`'s layout, TP size, steps and topk on `workload`'s prompts, at most `max_bytes` of pools.

    `end_ids` are the tokens that end an answer. `expected` holds output ids by prompt id from the baseline, as far as
    they are known: an answer that says the same ends where the baseline's did. `ties` says how the server breaks ties
    between equal candidates.
    """

    config: EngineConfig
    workload: Workload = field(repr=False)
    concurrency: int
    ties: TieRule
    vocabulary: int
    end_ids: frozenset[int] = frozenset()
    expected: Mapping[str, Sequence[int]] = field(default_factory=dict, repr=False)
    prompts_per_segment: int = 64
    max_bytes: int = 4 * 2**30

    def __post_init__(self) -> None:
        if self.config.triple is None or self.config.layout is None:
            raise ValueError("a server without speculation has nothing to trace")
        if self.workload.temperature != 0:
            raise InputError(f"workload.temperature: a trace needs 0, not {self.workload.temperature}")
        if min(self.concurrency, self.prompts_per_segment, self.max_bytes) < 1:
            raise ValueError("concurrency, prompts_per_segment and max_bytes must be at least 1")

    @property
    def facts(self) -> TraceFacts:
        layout, triple = self.config.layout, self.config.triple
        assert layout is not None
        assert triple is not None
        return TraceFacts(
            layout=layout,
            tp_size=self.config.tp_size,
            eagle_topk=triple.eagle_topk,
            num_steps=triple.num_steps,
            workload_id=self.workload.workload_id,
            ties=self.ties,
            flags=trace_flags(self.config.flags),
            parallel=parallel_flags(self.config.flags),
        )


@dataclass(frozen=True, kw_only=True)
class TraceOutcome:
    """A finished trace. `problems` are one line each, also on every prompt that could not be traced.

    `untraceable` says why by prompt id, for prompts that no further call would trace: those that the server refuses,
    and those with positions missing after MAX_PASSES. `launch` is what the engine said when it began to trace; None
    when there was nothing left to trace.
    """

    folder: Path
    prompts: int
    problems: tuple[str, ...]
    untraceable: Mapping[str, str] = field(default_factory=dict)
    launch: LaunchObservation | None = None


def tracing_config(config: EngineConfig, *, num_steps: int, eagle_topk: int) -> EngineConfig:
    """`config` at the steps and topk to be traced, with the smallest tree: its size does not change the pools."""
    triple = Triple(num_steps=num_steps, eagle_topk=eagle_topk, num_draft_tokens=num_steps + 1)
    return EngineConfig(layout=config.layout, triple=triple, tp_size=config.tp_size, flags=config.flags)


def trace_workload(engine: TracingEngine, request: TraceRequest, traces: Path) -> TraceOutcome | Failure:
    """Trace what is not traced yet, into a folder of `traces` named after what it is.

    Blocks. A prompt that the server refuses is a problem of the outcome, not its end. After a Failure what was finished
    stays, and another call goes on there. The engine is left tracing: the next `apply` ends it. InputError when the
    folder holds a trace of something else, OSError when nothing can be kept in it.
    """
    folder = traces / request.facts.folder_name
    write_facts(folder, request.facts)
    done = {prompt.prompt_id for prompt in read_prompts(folder)}
    left = [prompt for prompt in request.workload.prompts if prompt.prompt_id not in done]
    run = _Run(engine, request, folder)
    for start in range(0, len(left), request.prompts_per_segment):
        failure = run.trace_batch(left[start : start + request.prompts_per_segment])
        if failure is not None:
            return failure.counted(run.starts)
    launch = None if run.launch is None else run.launch.counted(run.starts)
    return TraceOutcome(
        folder=folder,
        prompts=len(read_prompts(folder)),
        problems=tuple(run.problems),
        untraceable=run.untraceable,
        launch=launch,
    )


class _Run:
    """One call of `trace_workload`."""

    def __init__(self, engine: TracingEngine, request: TraceRequest, folder: Path) -> None:
        self._engine, self._request, self._folder = engine, request, folder
        self.problems: list[str] = []
        self.untraceable: dict[str, str] = {}
        self.launch: LaunchObservation | None = None
        self.starts = 0
        numbers = [int(found[1]) for file in folder.iterdir() if (found := re.fullmatch(r"(\d+)\.pools", file.name))]
        self._segments = max(numbers, default=0)
        self._texts: dict[str, tuple[int, ...]] = {key: tuple(ids) for key, ids in request.expected.items()}
        self._unanswered: dict[str, NoAnswer] = {}  # prompts of the batch, by id
        self._gaps: Counter[str] = Counter()  # passes that left positions out, by prompt id

    def trace_batch(self, prompts: Sequence[Prompt]) -> Failure | None:
        """Trace the prompts: those with gaps again, with a poison that their text does not hold, and those without an
        answer, unless they took all the time that a request may take."""
        self._unanswered = {}
        for _ in range(MAX_PASSES):
            again = self._pass(prompts)
            if isinstance(again, Failure):
                return again
            prompts = again
            if not prompts:
                break
        for broken in self._unanswered.values():
            self._note(f"prompt {broken.prompt.prompt_id}: {broken.problem}")
        for prompt in (prompt for prompt in prompts if prompt.prompt_id not in self._unanswered):
            lasting = self._gaps[prompt.prompt_id] == MAX_PASSES
            self._give_up(prompt, f"positions missing after {MAX_PASSES} passes", lasting=lasting)
        return None

    def _pass(self, prompts: Sequence[Prompt]) -> list[Prompt] | Failure:
        """Note every prompt that came out whole; returns those to be asked for again."""
        self._segments += 1
        file = self._folder / f"{self._segments:04d}.pools"
        left = self._request.max_bytes - sum(old.stat().st_size for old in self._folder.glob("*.pools"))
        if left <= 0:
            return self._cut_off(None)
        order = TraceOrder(file=str(file), poison_id=self._poison(prompts), max_bytes=left)
        started = self._engine.trace(self._request.config, order)
        self.starts += 1 if started.server_starts is None else started.server_starts
        if isinstance(started, Failure):
            return started
        self.launch = self.launch or started
        asked = asyncio.run(self._ask(prompts))
        if isinstance(asked, Failure):
            return asked
        for refusal in asked.refused:
            self._give_up(refusal.prompt, refusal.problem)
        self._unanswered = {key: one for key, one in self._unanswered.items() if one.reason == "timeout"}
        self._unanswered |= {one.prompt.prompt_id: one for one in asked.broken}
        gaps = self._keep(file, asked.answers) if asked.answers else []
        if isinstance(gaps, Failure):
            return gaps
        if asked.given_up is not None:
            return asked.given_up
        self._gaps.update(prompt.prompt_id for prompt in gaps)
        return [*gaps, *(one.prompt for one in asked.broken if one.reason != "timeout")]

    def _keep(self, file: Path, answers: Sequence[TracedAnswer]) -> list[Prompt] | Failure:
        """Note the answers that are whole in a finished segment; returns the prompts of the others."""
        try:
            segment = PoolTraceFile(file)
        except InputError as problem:
            return self._engine.failure_now() or _failure(f"the server wrote no trace: {problem}", kind="machine")
        whole = []
        for answer in answers:
            length = self._length(answer.prompt, answer.output_ids)
            if not len(missing_positions(segment, answer.request_id, answer.prompt_tokens, length)):
                whole.append(_traced(answer, length, file.name))
            self._check(answer)
            self._texts[answer.prompt.prompt_id] = answer.output_ids
        append_prompts(self._folder, whole)
        if segment.truncated and len(whole) < len(answers):
            return self._cut_off(segment.trouble)
        kept = {traced.prompt_id for traced in whole}
        return [answer.prompt for answer in answers if answer.prompt.prompt_id not in kept]

    def _cut_off(self, trouble: str | None) -> Failure:
        if trouble is not None:
            return _failure(f"the server cannot write the trace: {trouble}", kind="machine")
        return _failure(f"the trace has reached its limit of {self._request.max_bytes} bytes")

    def _poison(self, prompts: Sequence[Prompt]) -> int:
        """A token that none of the texts holds, as far as they are known; the highest such id, often a rare one."""
        said = {token for prompt in prompts for token in self._texts.get(prompt.prompt_id, ())}
        free = (token for token in range(self._request.vocabulary - 1, -1, -1) if token not in said)
        return next(free, 0)

    async def _ask(self, prompts: Sequence[Prompt]) -> Answers | Failure:
        triple = self._request.config.triple
        assert triple is not None
        return await ask_prompts(
            prompts,
            base_url=self._engine.base_url,
            workload=self._request.workload,
            concurrency=self._request.concurrency,
            num_steps=triple.num_steps,
            name=str(self._segments),
            failure_now=self._engine.failure_now,
            broken_before=self._unanswered,
        )

    def _length(self, prompt: Prompt, ids: Sequence[int]) -> int:
        """How many of the tokens a request of the workload would get: as many as the baseline got, if it is known."""
        workload = self._request.workload
        most = min(len(ids), workload.max_new_tokens)
        ours = most
        if not workload.ignore_eos:
            ours = next((i + 1 for i, token in enumerate(ids[:most]) if token in self._request.end_ids), most)
        said = tuple(self._request.expected.get(prompt.prompt_id, ()))
        if not said or said != tuple(ids[: len(said)]):
            return ours
        length = min(len(said), most)
        if length != ours:
            self._note(f"prompt {prompt.prompt_id}: the baseline ended it after {length} tokens, not after {ours}")
        return length

    def _check(self, answer: TracedAnswer) -> None:
        """Compare with the baseline's text and with an earlier pass."""
        known = self._texts.get(answer.prompt.prompt_id)
        if known is None:
            return
        shared = min(len(known), len(answer.output_ids))
        differs = [i for i in range(shared) if known[i] != answer.output_ids[i]]
        if differs:
            self._note(f"prompt {answer.prompt.prompt_id}: another text from token {differs[0]} on")

    def _give_up(self, prompt: Prompt, reason: str, *, lasting: bool = True) -> None:
        """`lasting`: another call would end the same."""
        if lasting:
            self.untraceable[prompt.prompt_id] = reason
        self._note(f"prompt {prompt.prompt_id}: {reason}")

    def _note(self, problem: str) -> None:
        """Once, however often the prompt is traced."""
        if problem not in self.problems:
            self.problems.append(problem)


def _traced(answer: TracedAnswer, length: int, segment: str) -> TracedPrompt:
    return TracedPrompt(
        prompt_id=answer.prompt.prompt_id,
        request_id=answer.request_id,
        segment=segment,
        prompt_tokens=answer.prompt_tokens,
        length=length,
        output_ids=answer.output_ids,
    )


def _failure(message: str, kind: Kind = "client") -> Failure:
    return Failure(phase="measure", kind=kind, message=" ".join(message.split()))
