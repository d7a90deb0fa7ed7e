"""The acceptance surface: what every setting under a trace would accept, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from results.acceptance import acceptance_by_position, pooled_histogram, survival_accept_length
from results.pool_replay import Lengths, Rounds, accepted_lengths, walk
from results.stats.bootstrap import bootstrap
from results.stats.ratios import ratios_of_sums
from results.summary import Estimate
from results.traces import Trace
from search_spaces.config import Flags, Taps, Triple, layout_label
from search_spaces.triple_rules import tree_pool

Method = Literal["replay", "survival"]

SURFACE_SCHEMA = 1
MAX_DRAFT_TOKENS = 64
"""The largest tree looked at unless others are asked for; SGLang's documentation goes to 64."""


@dataclass(frozen=True, kw_only=True)
class SurfacePoint:
    """One setting under one trace. `replay` is exact for the traced text; `survival` is an estimate (chains only).

    `accept_length` is tokens per verify step as `CellSummary.accept_length` counts them, its interval over prompts.
    `rounds_by_prompt[i]`, `tokens_by_prompt[i]` and the token ids `texts[i]` belong to prompt i; `tied_positions`
    counts positions at which a tie between equal candidates decided. For an estimate, rounds are the measured ones of
    the histogram it comes from. `flags` are those of the trace (`results.traces.trace_flags`).
    """

    layout: Taps
    tp_size: int
    triple: Triple
    accept_length: Estimate
    acceptance_by_position: tuple[float, ...]
    histogram: tuple[int, ...]
    rounds: int
    method: Method
    prompt_ids: tuple[str, ...] = ()
    rounds_by_prompt: tuple[int, ...] = ()
    tokens_by_prompt: tuple[int, ...] = ()
    texts: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    tied_positions: int = 0
    flags: Flags = ()

    def to_row(self) -> dict[str, Any]:
        """A row of `specsweep surface --json`."""
        return {
            "layout": layout_label(self.layout),
            "tp_size": self.tp_size,
            "flags": dict(self.flags),
            "eagle_topk": self.triple.eagle_topk,
            "num_steps": self.triple.num_steps,
            "num_draft_tokens": self.triple.num_draft_tokens,
            "accept_length": self.accept_length.value,
            "rounds": self.rounds,
            "low": self.accept_length.low,
            "high": self.accept_length.high,
            "prompts": self.accept_length.count,
            "acceptance_by_position": list(self.acceptance_by_position),
            "histogram": list(self.histogram),
            "tied_positions": self.tied_positions,
            "method": self.method,
        }


def legal_triples(num_steps: int, eagle_topk: int, draft_tokens: Iterable[int] | None = None) -> tuple[Triple, ...]:
    """Every setting of at most `num_steps` steps that SGLang can run at this topk, steps outermost.

    `draft_tokens` limits the trees to these sizes; by default every size to `MAX_DRAFT_TOKENS`. A chain has one size.
    """
    sizes = range(2, MAX_DRAFT_TOKENS + 1) if draft_tokens is None else sorted(set(draft_tokens))
    found = []
    for steps in range(1, num_steps + 1):
        most = tree_pool(steps, eagle_topk) + 1
        legal = [steps + 1] if eagle_topk == 1 else [n for n in sizes if steps + 1 <= n <= most]
        found += [Triple(num_steps=steps, eagle_topk=eagle_topk, num_draft_tokens=n) for n in legal]
    return tuple(found)


def replay_trace(trace: Trace, triples: Sequence[Triple]) -> tuple[Rounds, NDArray[np.int64]]:
    """(verify steps of every setting on every prompt, positions per setting at which a tie decided)."""
    lengths: list[Lengths] = []
    tied = np.zeros(len(triples), dtype=np.int64)
    for piece in trace.pieces():
        accepted = accepted_lengths(piece.pools, triples, trace.facts.ties)
        lengths.append(accepted.lengths)
        tied += accepted.tied
    together = np.concatenate(lengths, axis=1) if lengths else np.zeros((len(triples), 0), dtype=np.int8)
    return walk(together, [prompt.length for prompt in trace.prompts]), tied


def surface_of(trace: Trace, triples: Sequence[Triple] | None = None) -> tuple[SurfacePoint, ...]:
    """One exact point per setting: `triples`, by default every legal one. ValueError for one that is not covered.

    Prompts whose answer is a single token have no verify step and are left out; none left gives no point.
    """
    wanted = legal_triples(trace.facts.num_steps, trace.facts.eagle_topk) if triples is None else tuple(triples)
    replayed, tied = replay_trace(trace, wanted)
    counted = [i for i, prompt in enumerate(trace.prompts) if prompt.length > 1]
    if not counted or not wanted:
        return ()
    ids = tuple(trace.prompts[i].prompt_id for i in counted)
    tokens = np.asarray([trace.prompts[i].length for i in counted])
    texts = tuple(trace.prompts[i].output_ids[: trace.prompts[i].length] for i in counted)
    rounds = replayed.rounds[:, counted]
    estimates = ratios_of_sums(tokens, rounds.T)
    points = []
    for i, triple in enumerate(wanted):
        histogram = tuple(np.trim_zeros(replayed.histogram[i].sum(axis=0), "b").tolist())
        points.append(
            SurfacePoint(
                layout=trace.facts.layout,
                tp_size=trace.facts.tp_size,
                triple=triple,
                accept_length=estimates[i],
                acceptance_by_position=acceptance_by_position(histogram, triple.num_steps),
                histogram=histogram,
                rounds=int(rounds[i].sum()),
                method="replay",
                prompt_ids=ids,
                rounds_by_prompt=tuple(rounds[i].tolist()),
                tokens_by_prompt=tuple(tokens.tolist()),
                texts=texts,
                tied_positions=int(tied[i]),
                flags=trace.facts.flags,
            )
        )
    return tuple(points)


def survival_points(
    layout: Taps, tp_size: int, num_steps: int, histograms: Mapping[str, Sequence[int]], *, seed: int = 0
) -> tuple[SurfacePoint, ...]:
    """Estimates for every shorter chain from the histograms (by prompt) of a measured chain of `num_steps`.

    An estimate because rounds would start elsewhere; it also leaves out the prefill's token and the cut at the end.
    Empty without a verify step.
    """
    histogram = pooled_histogram(histograms.values())
    if sum(histogram) == 0:
        return ()
    survival = acceptance_by_position(histogram, num_steps)
    return tuple(
        SurfacePoint(
            layout=layout,
            tp_size=tp_size,
            triple=Triple(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1),
            accept_length=_survival_estimate(histograms, steps, survival_accept_length(survival, steps), seed),
            acceptance_by_position=survival[:steps],
            histogram=(*histogram[:steps], sum(histogram[steps:])),
            rounds=sum(histogram),
            method="survival",
        )
        for steps in range(1, num_steps + 1)
    )


def _survival_estimate(histograms: Mapping[str, Sequence[int]], steps: int, value: float, seed: int) -> Estimate:
    columns = np.zeros((len(histograms), 2))
    for row, key in enumerate(sorted(histograms)):
        histogram = histograms[key]
        committed = sum(count * (1 + min(accepted, steps)) for accepted, count in enumerate(histogram))
        columns[row] = committed, sum(histogram)
    estimate = bootstrap(lambda sums: sums[:, 0] / np.where(sums[:, 1] > 0, sums[:, 1], np.nan), columns, seed=seed)
    assert abs(estimate.value - value) < 1e-9  # sum of min(a, K) over rounds is the sum of the survival counts
    return estimate


def surfaces_of(traces: Iterable[Trace], draft_tokens: Iterable[int] | None = None) -> Iterator[SurfacePoint]:
    """The points of several traces, one trace after the other."""
    sizes = None if draft_tokens is None else tuple(draft_tokens)
    for trace in traces:
        yield from surface_of(trace, legal_triples(trace.facts.num_steps, trace.facts.eagle_topk, sizes))


def surface_json(points: Sequence[SurfacePoint]) -> dict[str, Any]:
    """What `specsweep surface --json` prints and a study stores."""
    return {"schema": SURFACE_SCHEMA, "rows": [point.to_row() for point in points]}
