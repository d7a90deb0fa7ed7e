"""A trace on its way from the machine that made it to the study's folder: files, and how they are kept.

The server that traces may run on another node than the driver. What it wrote there stays in a folder of its group until
it is fetched (`actors.trace_transfer`), and is put into the study's trace folder by the driver, which alone writes
there. No file is ever in memory as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from results.durable_files import pieces_of, replace_file_by_pieces
from results.traces import TracedPrompt, TraceFacts, add_untraceable, append_prompts, read_prompts, write_facts
from search_spaces.errors import EnvironmentProblem

INDEX_SUFFIX = ".requests"
_SEGMENT = re.compile(r"(\d+)\.pools(\.requests)?")


@dataclass(frozen=True, kw_only=True)
class TracedSegment:
    """One segment: the plugin's file of pools, with its index beside it, and the prompts that are whole in it.

    Only the first `pools_bytes` and `index_bytes` of the two belong to it: the server may still hold them open.
    """

    name: str
    pools_bytes: int
    index_bytes: int
    prompts: tuple[TracedPrompt, ...] = field(repr=False)

    @property
    def files(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of both files, the index first: pools without it say nothing."""
        return ((self.name + INDEX_SUFFIX, self.index_bytes), (self.name, self.pools_bytes))


@dataclass(frozen=True, kw_only=True)
class TracedFiles:
    """What a trace gave, also one that failed half-way. `problems` are one line each; `untraceable` says by prompt id
    why no further try would trace it.

    The files of its segments lie in `folder`, of the machine on which the trace was made or to which it was fetched, as
    long as whoever made that folder keeps it: a group until its next trace. `mark` tells whether it is this machine.
    """

    facts: TraceFacts
    folder: Path
    segments: tuple[TracedSegment, ...]
    mark: str = ""
    problems: tuple[str, ...] = ()
    untraceable: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(size for segment in self.segments for _, size in segment.files)


def find_segments(folder: Path) -> tuple[TracedSegment, ...]:
    """Every segment of a trace folder that a finished prompt is in, as large as it is now; leftovers are not looked
    at."""
    by_segment: dict[str, list[TracedPrompt]] = {}
    for prompt in read_prompts(folder):
        by_segment.setdefault(prompt.segment, []).append(prompt)
    return tuple(
        TracedSegment(
            name=name,
            pools_bytes=(folder / name).stat().st_size,
            index_bytes=(folder / (name + INDEX_SUFFIX)).stat().st_size,
            prompts=tuple(prompts),
        )
        for name, prompts in by_segment.items()
    )


def keep_segments(traces: Path, traced: TracedFiles) -> Path:
    """Add what was traced to the trace of its facts in the folder `traces`; returns the trace's own folder.

    A segment is on the disk before its prompts are listed, so a writer that dies leaves at most a file that nobody
    looks at, which the next call removes. Prompts that are listed already are not added again. The files are
    copied, not moved: the server may still write into them. Only the holder of the study's lock may call it.
    InputError when the folder holds a trace of something else, EnvironmentProblem when the disk refuses.
    """
    folder = traces / traced.facts.folder_name
    try:
        write_facts(folder, traced.facts)
        for segment in traced.segments:
            _keep(folder, segment, traced.folder)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EnvironmentProblem(f"{folder}: the trace cannot be written: {reason}") from None
    return folder


def keep_untraceable(traces: Path, facts: TraceFacts, reasons: Mapping[str, str]) -> None:
    """Note by prompt id why these prompts of a trace cannot be traced, so that no further server is started for them.

    Only the holder of the study's lock may call it. Errors as for `keep_segments`.
    """
    folder = traces / facts.folder_name
    try:
        write_facts(folder, facts)
        add_untraceable(folder, reasons)
    except OSError as error:
        raise EnvironmentProblem(f"{folder}: the trace cannot be written: {error.strerror or error}") from None


def _keep(folder: Path, segment: TracedSegment, source: Path) -> None:
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
    for made, size in segment.files:
        kept = folder / (name + made.removeprefix(segment.name))
        replace_file_by_pieces(kept, pieces_of(source / made, size))
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
