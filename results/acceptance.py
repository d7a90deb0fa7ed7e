"""Acceptance from counters: identities, accept length, positions, survival, and the rates that people report.

Definitions follow the server's per-request fields (`meta_info` of `/generate`, SGLang 0.5.23,
`srt/managers/tokenizer_manager.py`): `spec_verify_ct`, `spec_num_correct_drafts`, `spec_num_proposed_drafts` (verify
steps times num_draft_tokens - 1) and `spec_correct_drafts_histogram` (verify steps that accepted 0, 1, 2, ... drafts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from results.observations import RequestRow
from search_spaces.config import Triple

RateDefinition = Literal["correct_over_proposed", "tokens_over_draft_tokens"]


def counter_problem(row: RequestRow, triple: Triple | None = None) -> str | None:
    """Why a request's speculative counters cannot be true, in words; None when every identity that applies holds.

    Checked: sum h = verify steps; sum i*h = correct drafts; proposed = verify steps * (n - 1); correct <= proposed; no
    step accepts more than num_steps; tokens <= verify steps + correct drafts + 1, the prefill's own token being the 1.
    (Fewer tokens are possible: the last step's drafts beyond the end of the output are counted as correct.)
    A request without counters has no problem: it has no acceptance either.
    """
    return next(_counter_problems(row, triple), None)


def _counter_problems(row: RequestRow, triple: Triple | None) -> Iterator[str]:
    steps, accepted, proposed, histogram = row.verify_steps, row.correct_drafts, row.proposed_drafts, row.histogram
    if steps is None:
        return
    if steps < 0 or (accepted or 0) < 0 or min(histogram or (0,)) < 0:
        yield "a counter is negative"
    if histogram is not None:
        counted = sum(i * count for i, count in enumerate(histogram))
        if sum(histogram) != steps:
            yield f"the histogram counts {sum(histogram)} verify steps, the server {steps}"
        if accepted is not None and counted != accepted:
            yield f"the histogram accepts {counted} drafts, the server {accepted}"
        if triple is not None and any(histogram[triple.num_steps + 1 :]):
            yield f"a step accepted more than num_steps = {triple.num_steps} drafts"
        accepted = counted
    if proposed is not None and accepted is not None and accepted > proposed:
        yield f"{accepted} accepted of {proposed} proposed drafts"
    if proposed is not None and triple is not None and proposed != steps * (triple.num_draft_tokens - 1):
        yield f"{proposed} proposed drafts are not {steps} verify steps x {triple.num_draft_tokens - 1}"
    if accepted is not None and row.completion_tokens > steps + accepted + 1:
        yield f"{row.completion_tokens} tokens from {steps} verify steps with {accepted} accepted drafts"


def pooled_histogram(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The sum of histograms of different lengths, position by position."""
    pooled: list[int] = []
    for histogram in histograms:
        pooled.extend([0] * (len(histogram) - len(pooled)))
        for position, count in enumerate(histogram):
            pooled[position] += count
    return tuple(pooled)


def acceptance_by_position(histogram: Sequence[int], num_steps: int | None = None) -> tuple[float, ...]:
    """Unconditional: entry i (from 0) is the share of verify steps that accepted more than i drafts.

    `num_steps` entries (positions that were never accepted are 0), or one fewer than the histogram has. Empty when the
    histogram counts no step.
    """
    total = sum(histogram)
    if total == 0:
        return ()
    length = num_steps if num_steps is not None else len(histogram) - 1
    return tuple(sum(histogram[i + 1 :]) / total for i in range(length))


def conditional_acceptance(unconditional: Sequence[float]) -> tuple[float | None, ...]:
    """Entry i is the share accepted at position i among the steps that reached it; None when none reached it."""
    reached = [1.0, *unconditional]
    return tuple(now / before if before > 0 else None for before, now in zip(reached, unconditional, strict=False))


def survival_accept_length(unconditional: Sequence[float], num_steps: int) -> float:
    """E[L(K)] = 1 + sum of the first K survival shares S_i: the accept length of a chain cut to K drafts.

    An estimate, for topk 1 only (rounds start elsewhere at another K). ValueError when K exceeds what was measured.
    """
    if not 1 <= num_steps <= len(unconditional):
        raise ValueError(f"num_steps must be between 1 and {len(unconditional)}, not {num_steps}")
    return 1.0 + sum(unconditional[:num_steps])


def accept_length_from_drafts(*, accepted: int, proposed: int, draft_tokens_per_step: int) -> float:
    """1 + accepted drafts per verify step, the number of steps being proposed / drafts proposed per step."""
    if proposed <= 0 or draft_tokens_per_step <= 0:
        raise ValueError(f"needs proposed drafts, not {proposed} in steps of {draft_tokens_per_step}")
    return 1.0 + draft_tokens_per_step * accepted / proposed


def accept_rate(accept_length: float, num_draft_tokens: int, definition: RateDefinition) -> float:
    """What a report calls acceptance: (AL - 1)/(n - 1), as SGLang 0.5.23 logs it, or AL/n, as about 0.5.3 did."""
    if definition == "correct_over_proposed":
        if num_draft_tokens < 2:
            raise ValueError(f"no drafts are proposed with num_draft_tokens = {num_draft_tokens}")
        return (accept_length - 1) / (num_draft_tokens - 1)
    return accept_length / num_draft_tokens


def rate_definition(
    accept_length: float, num_draft_tokens: int, reported_rate: float, tolerance: float = 0.006
) -> RateDefinition | None:
    """Which definition a reported rate (0 to 1) follows, the nearer one within `tolerance`; None when it fits neither.

    The default tolerance is the rounding of a rate given in whole percents and a length given to two decimals.
    """
    definitions: tuple[RateDefinition, ...] = ("correct_over_proposed", "tokens_over_draft_tokens")
    distances = {name: abs(accept_rate(accept_length, num_draft_tokens, name) - reported_rate) for name in definitions}
    nearest = min(distances, key=lambda name: distances[name])
    return nearest if distances[nearest] <= tolerance else None


MAX_ACCEPT_LENGTH = 1e6
"""Far beyond any number of draft tokens."""


def read_server_average(server_info: Mapping[str, Any]) -> tuple[float | None, str | None]:
    """(average, None) or (None, reason) from `/server_info`: the server's running accept length, a cross-check only.

    The key is `internal_states[i].avg_spec_accept_length`, one per data-parallel rank; ranks weigh differently, so
    their averages are not combined. It covers everything since the start or the last successful flush and moves every
    40 decode iterations, so it is absent after a short run although acceptance is healthy, and the tail of every run is
    missing (SGLang 0.5.23, `srt/managers/scheduler_components/metrics_reporter.py`).
    """
    states = server_info.get("internal_states")
    if not isinstance(states, Sequence) or isinstance(states, str) or not states:
        return None, "the server reports no internal states"
    if len(states) > 1:
        return None, f"{len(states)} data-parallel ranks, whose averages cannot be combined"
    value = states[0].get("avg_spec_accept_length") if isinstance(states[0], Mapping) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < MAX_ACCEPT_LENGTH:
        return float(value), None
    if value is not None:
        return None, f"avg_spec_accept_length is {value!r}, which no accept length can be"
    if not server_info.get("speculative_algorithm", True):
        return None, "no speculation"
    return None, "fewer than one log interval (40 decode iterations) since the start or the last flush"
