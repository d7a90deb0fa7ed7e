"""Which traced point counts for a setting, where a study traced it more than once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from results.observations import RequestRow
from results.surface import SurfacePoint
from search_spaces.config import Flags, Taps, Triple

Points = Mapping[tuple[Taps, Triple], SurfacePoint]
"""The one point that counts for a layout and triple. TP size is no part of it: it should not change what is accepted,
and is checked elsewhere (`results.tp_agreement`)."""


def once_each(points: Iterable[SurfacePoint]) -> tuple[SurfacePoint, ...]:
    """One point for each layout, TP size, flags and triple: that of the most prompts, of equals the first."""
    kept: dict[tuple[Taps, int, Flags, Triple], SurfacePoint] = {}
    for point in points:
        key = point.layout, point.tp_size, point.flags, point.triple
        if key not in kept or kept[key].accept_length.count < point.accept_length.count:
            kept[key] = point
    return tuple(kept.values())


def points_that_count(points: Iterable[SurfacePoint], flags: Sequence[Flags] = ((),)) -> Points:
    """Of the replayed points the one of the smallest TP size for each setting, there the one of the most prompts.

    `flags` are those that a study's servers have, the ones to trace first; points of other flags (an isolation's) count
    where there is nothing else. Traces that ended early are left out: on less than half of the prompts that others
    have, accept lengths cannot be held against theirs.
    """
    replayed = [point for point in points if point.method == "replay"]
    most = max((point.accept_length.count for point in replayed), default=0)
    alike = [point for point in replayed if 2 * point.accept_length.count >= most]
    found: dict[tuple[Taps, Triple], SurfacePoint] = {}
    known = {one: place for place, one in enumerate(dict.fromkeys(flags))}
    for point in sorted(
        once_each(alike),
        key=lambda point: (point.flags not in known, point.tp_size, known.get(point.flags, 0)),
    ):
        found.setdefault((point.layout, point.triple), point)
    return found


def accept_length_of(requests: Sequence[RequestRow], point: SurfacePoint) -> float:
    """What the trace says of these requests: a cell that stopped early sent other prompts than were traced in all.

    Tokens per verify step over the requests that succeeded; one of a prompt that was not traced counts with the verify
    steps that it took. Without a traced prompt among them it is the point's own accept length.
    """
    traced = zip(point.prompt_ids, point.rounds_by_prompt, point.tokens_by_prompt, strict=True)
    per_token = {prompt: rounds / tokens for prompt, rounds, tokens in traced}
    succeeded = [row for row in requests if row.error is None]
    if not any(row.prompt_id in per_token for row in succeeded):
        return point.accept_length.value
    pairs = [
        (row.completion_tokens, per_token[row.prompt_id] * row.completion_tokens)
        if row.prompt_id in per_token
        else (row.completion_tokens, row.verify_steps or 0)
        for row in succeeded
    ]
    steps = sum(steps for _, steps in pairs)
    return sum(tokens for tokens, steps in pairs if steps) / steps if steps else point.accept_length.value
