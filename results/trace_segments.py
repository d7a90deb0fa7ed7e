"""A trace on its way from the machine that made it to the study's folder: segments in memory, and how they are kept.

The server that traces may run on another node than the driver. What it wrote there travels as bytes, bounded by the
job that asked for it, and is put into the study's trace folder by the driver, which alone writes there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from results.durable_files import replace_file
from results.traces import TracedPrompt, TraceFacts, append_prompts, read_prompts, write_facts
from search_spaces.errors import EnvironmentProblem

INDEX_SUFFIX = ".requests"
_SEGMENT = re.compile(r"(\d+)\.pools(\.requests)?")


@dataclass(frozen=True, kw_only=True)
class TracedSegment:
    """One segment: the plugin's two files, and the prompts that are whole in it."""

    pools: bytes = field(repr=False)
    requests: bytes = field(repr=False)
    prompts: tuple[TracedPrompt, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class TracedFiles:
    """What a trace gave, also one that failed half-way. `problems` are one line each."""

    facts: TraceFacts
    segments: tuple[TracedSegment, ...]
    problems: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(len(segment.pools) + len(segment.requests) for segment in self.segments)


def read_segments(folder: Path) -> tuple[TracedSegment, ...]:
    """Every segment of a trace folder that a finished prompt is in; leftovers are not looked at."""
    by_segment: dict[str, list[TracedPrompt]] = {}
    for prompt in read_prompts(folder):
        by_segment.setdefault(prompt.segment, []).append(prompt)
    return tuple(
        TracedSegment(
            pools=(folder / name).read_bytes(),
            requests=(folder / (name + INDEX_SUFFIX)).read_bytes(),
            prompts=tuple(prompts),
        )
        for name, prompts in by_segment.items()
    )


def keep_segments(traces: Path, facts: TraceFacts, segments: Sequence[TracedSegment]) -> Path:
    """Add segments to the trace of `facts` in the folder `traces`; returns the trace's own folder.

    A segment is on the disk before its prompts are listed, so a writer that dies leaves at most a file that nobody
    looks at, which the next call removes. Prompts that are listed already are not added again. Only the holder of the
    study's lock may call it. InputError when the folder holds a trace of something else, EnvironmentProblem when the
    disk refuses.
    """
    folder = traces / facts.folder_name
    try:
        write_facts(folder, facts)
        for segment in segments:
            _keep(folder, segment)
    except OSError as error:
        raise EnvironmentProblem(f"{folder}: the trace cannot be written: {error.strerror or error}") from None
    return folder


def _keep(folder: Path, segment: TracedSegment) -> None:
    listed = read_prompts(folder)
    known = {prompt.prompt_id for prompt in listed}
    fresh = [prompt for prompt in segment.prompts if prompt.prompt_id not in known]
    if not fresh:
        return
    named = {prompt.segment for prompt in listed}
    last = 0
    for file in folder.iterdir():
        found = _SEGMENT.fullmatch(file.name)
        if found is None:
            continue
        if file.name.removesuffix(INDEX_SUFFIX) in named:
            last = max(last, int(found[1]))
        else:
            file.unlink()
    name = f"{last + 1:04d}.pools"
    replace_file(folder / (name + INDEX_SUFFIX), segment.requests)
    replace_file(folder / name, segment.pools)
    append_prompts(
        folder,
        [
            TracedPrompt(
                prompt_id=prompt.prompt_id,
                request_id=prompt.request_id,
                segment=name,
                prompt_tokens=prompt.prompt_tokens,
                length=prompt.length,
                output_ids=prompt.output_ids,
            )
            for prompt in fresh
        ],
    )
