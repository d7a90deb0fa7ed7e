"""A trace in a study: a folder with what was traced, every prompt's text, and segments of candidate pools.

    trace.json      what was traced (`TraceFacts`)
    prompts.jsonl   one line per finished prompt, written after its pools are on the disk
    untraceable.json  why, by prompt id, of prompts that cannot be traced; absent where there are none
    NNNN.pools      segments as the plugin writes them, each with NNNN.pools.requests

A prompt without a line, and a segment that no line names, are leftovers of an interrupted run and are not looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.corners import PARALLEL_FLAGS
from results.durable_files import replace_file
from results.pool_replay import Pools, pools_of_records
from results.pool_trace_file import Indices, PoolTraceFile
from results.topk_ties import TieRule
from search_spaces.config import Flags, Taps, layout_label
from search_spaces.errors import InputError

TRACE_SCHEMA = 1
FACTS_FILE, PROMPTS_FILE, UNTRACEABLE_FILE = "trace.json", "prompts.jsonl", "untraceable.json"

PIECE_ROWS = 4096
"""Positions held in memory at once: 15 MB for a pool of 456 nodes."""


@dataclass(frozen=True, kw_only=True)
class TraceFacts:
    """What a trace is of. `ties` is how the traced server breaks ties between equal candidates.

    `flags` are those of `trace_flags`, `parallel` the server's other ones; a trace that was made before they were noted
    has none.
    """

    layout: Taps
    tp_size: int
    eagle_topk: int
    num_steps: int
    workload_id: str
    ties: TieRule
    flags: Flags = ()
    parallel: Flags = ()
    schema: int = TRACE_SCHEMA

    @property
    def folder_name(self) -> str:
        """A name under which this trace is stored: unique per layout, TP size, topk, steps, workload and all flags."""
        return trace_folder_name(
            self.layout,
            self.tp_size,
            self.eagle_topk,
            self.num_steps,
            workload_id=self.workload_id,
            flags=(*self.flags, *self.parallel),
        )


def trace_folder_name(
    layout: Taps, tp_size: int, eagle_topk: int, num_steps: int, *, workload_id: str, flags: Flags
) -> str:
    """See `TraceFacts.folder_name`; `flags` are all of the server's."""
    taps, plain, parallel = layout_label(layout).replace(",", "-"), trace_flags(flags), parallel_flags(flags)
    name = f"taps{taps}-tp{tp_size}-k{eagle_topk}-s{num_steps}-{workload_id}"
    return name + (f"-{flags_mark(plain)}" if plain else "") + (f"-p{flags_mark(parallel)}" if parallel else "")


def trace_flags(flags: Flags) -> Flags:
    """The flags that two servers must share for their traces to be compared: all but those of parallelism."""
    return tuple(flag for flag in flags if flag[0] not in PARALLEL_FLAGS)


def parallel_flags(flags: Flags) -> Flags:
    """The flags of parallelism: a trace with others is another one, and what they change is what is compared."""
    return tuple(flag for flag in flags if flag[0] in PARALLEL_FLAGS)


def flags_mark(flags: Flags) -> str:
    """8 hexadecimal digits that tell flags apart in the name of a file."""
    return hashlib.sha256(json.dumps(flags).encode()).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True)
class TracedPrompt:
    """One prompt's text. `output_ids` go beyond the answer proper, so that its last round is known in full.

    `length` is how many of them a request gets (it stops at the end-of-text token or at its limit).
    """

    prompt_id: str
    request_id: str
    segment: str
    prompt_tokens: int
    length: int
    output_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TracePiece:
    """Pools of some positions of one prompt."""

    prompt: int
    pools: Pools


class Trace:
    """A trace as it stands on the disk. InputError, naming the file, where something is missing or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts = _read_facts(path / FACTS_FILE)
        self.prompts = read_prompts(path)

    def pieces(self) -> Iterator[TracePiece]:
        """All positions, prompt by prompt, in order; every prompt has `length - 1` of them in total."""
        for number, prompt in enumerate(self.prompts):
            segment = _segment(self.path / prompt.segment)
            if (segment.num_steps, segment.eagle_topk) != (self.facts.num_steps, self.facts.eagle_topk):
                raise InputError(f"{segment.path}: traced at other steps or topk than {self.path / FACTS_FILE} says")
            rows = self._rows(segment, prompt)
            words = continuation(prompt.output_ids, prompt.length, self.facts.num_steps)
            for start in range(0, len(rows), PIECE_ROWS):
                piece = slice(start, start + PIECE_ROWS)
                pools = pools_of_records(
                    segment.records[rows[piece]],
                    words[piece],
                    num_steps=self.facts.num_steps,
                    eagle_topk=self.facts.eagle_topk,
                )
                yield TracePiece(prompt=number, pools=pools)

    def records_of(self, number: int) -> NDArray[Any]:
        """The raw records of one prompt (by its place in `prompts`), one per position, in order; not in memory yet."""
        prompt = self.prompts[number]
        segment = _segment(self.path / prompt.segment)
        records: NDArray[Any] = segment.records[self._rows(segment, prompt)]
        return records

    def _rows(self, segment: PoolTraceFile, prompt: TracedPrompt) -> Indices:
        rows = segment.rows_of(prompt.request_id)
        missing = missing_positions(segment, prompt.request_id, prompt.prompt_tokens, prompt.length)
        if len(missing):
            raise InputError(f"{segment.path}: prompt {prompt.prompt_id}: no pool at position {missing[0]}")
        positions = segment.records["position"][rows].astype(np.int64) - prompt.prompt_tokens
        kept: Indices = rows[(positions >= 0) & (positions < prompt.length - 1)]
        return kept


def missing_positions(segment: PoolTraceFile, request_id: str, prompt_tokens: int, length: int) -> Indices:
    """Positions (tokens before the root) of an answer of `length` tokens for which a request has no pool."""
    needed = np.arange(prompt_tokens, prompt_tokens + length - 1)
    return np.setdiff1d(needed, segment.records["position"][segment.rows_of(request_id)].astype(np.int64))


def continuation(output_ids: Sequence[int], length: int, num_steps: int) -> NDArray[np.int32]:
    """What follows the root at each of the first `length - 1` output tokens, [positions, num_steps], -1 if unknown."""
    padded = np.full(max(length, len(output_ids)) + num_steps, -1, dtype=np.int32)
    padded[: len(output_ids)] = output_ids
    windows: NDArray[np.int32] = np.lib.stride_tricks.sliding_window_view(padded[1:], num_steps)[: length - 1]
    return windows


def write_facts(path: Path, facts: TraceFacts) -> None:
    """Make the folder for a trace, or check that it is of the same: InputError naming the first difference."""
    file = path / FACTS_FILE
    if file.exists():
        there = _read_facts(file)
        for field in fields(TraceFacts):
            before, now = getattr(there, field.name), getattr(facts, field.name)
            if before != now:
                raise InputError(f"{file}: {field.name} was {before} and is now {now}")
        return
    path.mkdir(parents=True, exist_ok=True)
    replace_file(file, (json.dumps(asdict(facts), indent=2) + "\n").encode())


def append_prompts(path: Path, prompts: Sequence[TracedPrompt]) -> None:
    """Add finished prompts, durably. Their segments must be complete."""
    before = read_prompts(path)
    lines = [json.dumps(asdict(prompt), separators=(",", ":")) for prompt in (*before, *prompts)]
    replace_file(path / PROMPTS_FILE, "".join(line + "\n" for line in lines).encode())


def read_prompts(path: Path) -> tuple[TracedPrompt, ...]:
    """The finished prompts, in the order in which they were added."""
    file = path / PROMPTS_FILE
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
    try:
        return tuple(_prompt(json.loads(line)) for line in lines)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file}: damaged: {error}") from None


def add_untraceable(path: Path, reasons: Mapping[str, str]) -> None:
    """Note, durably, why these prompts (by id) cannot be traced. Nothing is written for none."""
    if reasons:
        content = json.dumps({**read_untraceable(path), **reasons}, indent=1, ensure_ascii=False)
        replace_file(path / UNTRACEABLE_FILE, (content + "\n").encode())


def read_untraceable(path: Path) -> dict[str, str]:
    """Why, by prompt id; empty for a trace of a version that did not note it. InputError for a damaged file."""
    file = path / UNTRACEABLE_FILE
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{file}: damaged: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(reason, str) for reason in content.values()):
        raise InputError(f"{file}: damaged: not reasons by prompt id")
    return content


def _prompt(line: dict[str, Any]) -> TracedPrompt:
    return TracedPrompt(**{**line, "output_ids": tuple(line["output_ids"])})


def _read_facts(file: Path) -> TraceFacts:
    try:
        content = json.loads(file.read_bytes())
        flags, parallel = (
            tuple((name, value) for name, value in content.get(key, ())) for key in ("flags", "parallel")
        )
        facts = TraceFacts(**{**content, "layout": tuple(content["layout"]), "flags": flags, "parallel": parallel})
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{file}: damaged: {error}") from None
    if facts.schema != TRACE_SCHEMA:
        raise InputError(f"{file}: schema {facts.schema} is unknown; legal: {TRACE_SCHEMA}")
    return facts


@lru_cache(maxsize=4)
def _segment(path: Path) -> PoolTraceFile:
    return PoolTraceFile(path)


def find_traces(folder: Path) -> tuple[Trace, ...]:
    """All traces in a folder, by name; none when there is no such folder."""
    return tuple(Trace(file.parent) for file in sorted(folder.glob(f"*/{FACTS_FILE}")))
