"""Does tensor parallelism change what the draft proposes? Two traces of the same text at two TP sizes, compared. Pure.

At every position both drafts saw the same text, so they should propose the same. Where they do not, they were fed
other states, or two candidates were so near that the order of a sum decided. Nothing is measured for it: the traces
are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.stats.ratios import Pair, paired_difference
from results.summary import Estimate
from results.surface import surface_of
from results.traces import Trace, TracedPrompt, trace_flags
from search_spaces.config import Flags, Taps, Triple, layout_label

QUARTERS = 4


@dataclass(frozen=True, kw_only=True)
class TpAgreement:
    """`by_depth[d]` is the share of `positions` at which the best-scored candidate of depth d + 1 is the same token,
    `by_quarter` that share over all depths in each quarter of the answers (early tokens first).

    Compared are the `prompts` that both traced, each as far as its text is the same; `other_texts` of them part before
    their end. `difference` is the accept length at `triple` at the larger size minus that at the smaller one, with its
    interval over the prompts; None when no triple was asked for.
    """

    layout: Taps
    eagle_topk: int
    num_steps: int
    tp_sizes: tuple[int, int]
    prompts: int
    other_texts: int
    positions: int
    by_depth: tuple[float, ...]
    by_quarter: tuple[float, ...]
    triple: Triple | None = None
    difference: Estimate | None = None

    def __str__(self) -> str:
        depths = ", ".join(f"{share:.1%}" for share in self.by_depth)
        text = (
            f"traced at tp {self.tp_sizes[0]} and {self.tp_sizes[1]} with layout {layout_label(self.layout)} at topk "
            f"{self.eagle_topk}: the draft proposes the same at {depths} of {self.positions} positions (depth 1 to "
            f"{len(self.by_depth)})"
        )
        if self.other_texts:
            text += f", {self.other_texts} of {self.prompts} texts differ"
        if self.difference is not None:
            it = self.difference
            text += f"; accept length at {self.triple}: {it.value:+.3f} [{it.low:+.3f}, {it.high:+.3f}]"
        return text

    def to_json(self) -> dict[str, Any]:
        it = self.difference
        return {
            "layout": list(self.layout),
            "eagle_topk": self.eagle_topk,
            "num_steps": self.num_steps,
            "tp_sizes": list(self.tp_sizes),
            "prompts": self.prompts,
            "other_texts": self.other_texts,
            "positions": self.positions,
            "by_depth": [round(share, 6) for share in self.by_depth],
            "by_quarter": [round(share, 6) for share in self.by_quarter],
            "triple": None if self.triple is None else str(self.triple),
            "difference": None if it is None else round(it.value, 6),
            "interval": None if it is None else [round(it.low, 6), round(it.high, 6)],
        }


def tp_agreement(one: Trace, other: Trace, triple: Triple | None = None) -> TpAgreement:
    """Compare two traces of the same layout, topk, steps, workload and flags; also what they give at `triple`.

    ValueError when they are not of the same, share no prompt, or do not cover the triple.
    """
    first, second = sorted((one, other), key=lambda trace: trace.facts.tp_size)
    for name in ("layout", "eagle_topk", "num_steps", "workload_id", "flags"):
        if getattr(first.facts, name) != getattr(second.facts, name):
            raise ValueError(f"the traces are not of the same {name}")
    facts = first.facts
    theirs = {prompt.prompt_id: number for number, prompt in enumerate(second.prompts)}
    shared = [(i, theirs[prompt.prompt_id]) for i, prompt in enumerate(first.prompts) if prompt.prompt_id in theirs]
    agreed: list[NDArray[np.bool_]] = []
    quarters: list[NDArray[np.int64]] = []
    other_texts = 0
    for mine, yours in shared:
        length = min(first.prompts[mine].length, second.prompts[yours].length)
        count = min(_common(first.prompts[mine], second.prompts[yours]), length - 1)
        other_texts += count < length - 1
        left, right = first.records_of(mine)[:count], second.records_of(yours)[:count]
        agreed.append(_best_tokens(left, facts.num_steps, facts.eagle_topk)
                      == _best_tokens(right, facts.num_steps, facts.eagle_topk))  # fmt: skip
        quarters.append(np.arange(count) * QUARTERS // max(1, length - 1))
    positions = sum(len(rows) for rows in agreed)
    if not positions:
        raise ValueError("the traces share no position with the same text")
    same, quarter = np.concatenate(agreed), np.concatenate(quarters)
    return TpAgreement(
        layout=facts.layout,
        eagle_topk=facts.eagle_topk,
        num_steps=facts.num_steps,
        tp_sizes=(facts.tp_size, second.facts.tp_size),
        prompts=len(shared),
        other_texts=other_texts,
        positions=positions,
        by_depth=tuple(same.mean(axis=0).tolist()),
        by_quarter=tuple(float(same[quarter == i].mean()) for i in range(QUARTERS) if (quarter == i).any()),
        triple=triple,
        difference=None if triple is None else _difference(first, second, triple),
    )


def agreements(traces: Sequence[Trace], layout: Taps, triple: Triple, flags: Flags = ()) -> tuple[TpAgreement, ...]:
    """Every pair of TP sizes at which the layout was traced so that it covers the triple; the smallest size first.

    `flags` are the server's: with others than `trace_flags` of them not only parallelism would differ.
    """
    fitting = [
        trace
        for trace in traces
        if (trace.facts.layout, trace.facts.flags) == (layout, trace_flags(flags))
        and trace.facts.eagle_topk == triple.eagle_topk
        and trace.facts.num_steps >= triple.num_steps
        and trace.prompts
    ]
    fitting.sort(key=lambda trace: trace.facts.tp_size)
    found = []
    for i, one in enumerate(fitting):
        for other in fitting[i + 1 :]:
            alike = one.facts.num_steps == other.facts.num_steps and one.facts.workload_id == other.facts.workload_id
            if alike and one.facts.tp_size != other.facts.tp_size:
                try:
                    found.append(tp_agreement(one, other, triple))
                except ValueError:
                    continue  # no prompt in common yet
    return tuple(found)


def _common(one: TracedPrompt, other: TracedPrompt) -> int:
    """How many tokens both texts begin with."""
    pairs = zip(one.output_ids, other.output_ids, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one.output_ids), len(other.output_ids)))


def _best_tokens(records: NDArray[Any], num_steps: int, eagle_topk: int) -> NDArray[np.int32]:
    """The best-scored candidate's token of every depth, [positions, depths]: k nodes at depth 1, then k * k each."""
    columns = []
    start = 0
    for depth in range(num_steps):
        width = eagle_topk if depth == 0 else eagle_topk**2
        nodes = slice(start, start + width)
        best = records["scores"][:, nodes].argmax(axis=1)
        columns.append(np.take_along_axis(records["tokens"][:, nodes], best[:, None], axis=1)[:, 0])
        start += width
    tokens: NDArray[np.int32] = np.stack(columns, axis=1)
    return tokens


def _difference(first: Trace, second: Trace, triple: Triple) -> Estimate | None:
    """None where the two share no prompt with a verify step."""
    sides: list[dict[str, Pair]] = []
    for trace in (first, second):
        points = surface_of(trace, [triple])
        sides.append(
            {
                key: (float(tokens), float(rounds))
                for point in points
                for key, tokens, rounds in zip(
                    point.prompt_ids, point.tokens_by_prompt, point.rounds_by_prompt, strict=True
                )
            }
        )
    return paired_difference(*sides) if sides[0].keys() & sides[1].keys() else None
