"""What speaks for or against a cause beside its share of the gap, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.attribution import Corner
from results.corners import MeasuredCorner
from results.output_identity import OutputIdentity, compare_outputs
from results.probed_feed import ProbedFeed, TrainedOn
from results.stats.effects import Answer, effect_verdict
from results.stats.ratios import paired_difference
from results.summary import Estimate
from results.tp_agreement import TpAgreement
from search_spaces.config import EngineConfig, layout_label


@dataclass(frozen=True, kw_only=True)
class ParallelPair:
    """Two corners that differ in parallelism alone. `difference` is the second's accept length minus the first's.

    `answer` says whether parallelism changes it: `no` is equivalence, the whole interval within the margin.
    """

    first: EngineConfig
    second: EngineConfig
    difference: Estimate
    answer: Answer
    identity: OutputIdentity

    def __str__(self) -> str:
        it = self.difference
        words = {"no": "equivalent", "yes": "different", "undecided": "not told apart"}[self.answer]
        return (
            f"tp {self.second.tp_size} against tp {self.first.tp_size} with layout "
            f"{layout_label(self.first.layout or ())} at {self.first.triple}: {it.value:+.3f} "
            f"[{it.low:+.3f}, {it.high:+.3f}], {words}; {self.identity}"
        )

    def to_json(self) -> dict[str, Any]:
        triple = self.first.triple
        return {
            "layout": list(self.first.layout or ()),
            "triple": None if triple is None else [triple.num_steps, triple.eagle_topk, triple.num_draft_tokens],
            "tp_sizes": [self.first.tp_size, self.second.tp_size],
            "difference": round(self.difference.value, 6),
            "interval": [round(self.difference.low, 6), round(self.difference.high, 6)],
            "changes": self.answer,
            "outputs_compared": self.identity.shared,
            "outputs_identical": self.identity.identical_share,
        }


def parallel_pairs(corners: Mapping[Corner, MeasuredCorner], margin: float) -> tuple[ParallelPair, ...]:
    """Every measured pair that differs in parallelism alone, the smaller TP size first. `margin` is absolute."""
    found = []
    for corner, one in corners.items():
        other = corners.get(corner | {"parallelism"})
        if "parallelism" in corner or other is None or not one.pairs.keys() & other.pairs.keys():
            continue
        first, second = sorted((one, other), key=lambda item: item.config.tp_size)
        difference = paired_difference(first.pairs, second.pairs)
        found.append(
            ParallelPair(
                first=first.config,
                second=second.config,
                difference=difference,
                answer=effect_verdict(difference, margin).answer,
                identity=compare_outputs(first.rows, second.rows),
            )
        )
    return tuple(found)


def config_evidence(suspect: MeasuredCorner) -> str:
    """What was asked against what runs, the ceiling, and how often verify steps reach it."""
    triple, cell = suspect.config.triple, suspect.cell
    if triple is None or cell is None:
        return ""
    text = f"the suspect's ceiling is {triple.ceiling} at {triple}"
    asked = suspect.records[0].setting
    numbers = None if asked is None else (asked.num_steps, asked.eagle_topk, asked.num_draft_tokens)
    if numbers is not None and None not in numbers and str(triple) != f"({','.join(map(str, numbers))})":
        text = f"({','.join(map(str, numbers))}) runs as {triple}; {text}"
    positions = cell.acceptance_by_position
    if positions:
        text += f", first-position acceptance {positions[0]:.2f}"
        if len(positions) >= triple.num_steps:
            text += f", {positions[triple.num_steps - 1]:.0%} of its verify steps accept every draft"
    return text


def layout_evidence(
    suspect: EngineConfig, reference: EngineConfig, feeds: Sequence[ProbedFeed], trained: TrainedOn | None
) -> str:
    """What the probes saw at the suspect's layout; without one, what the configurations say."""
    probed = [feed for feed in feeds if feed.config.layout == suspect.layout and feed.report is not None]
    whole = [feed for feed in probed if feed.report is not None and feed.report.layout is not None]
    if whole:
        return max(whole, key=lambda feed: feed.config.tp_size).sentence(trained).rstrip(".")
    text = f"the suspect feeds taps {list(suspect.layout or ())}, the reference {list(reference.layout or ())}"
    return text + (f"; the draft was {trained}" if trained is not None else "")


def parallel_fault(feeds: Sequence[ProbedFeed]) -> ProbedFeed | None:
    """The probe that caught tensor parallelism breaking what the draft is fed; None when none did."""
    for feed in feeds:
        fault = None if feed.report is None else feed.report.fault
        if feed.config.tp_size > 1 and fault in ("sliced", "partial", "diverged"):
            return feed
    return None


def parallel_evidence(
    pairs: Sequence[ParallelPair], feeds: Sequence[ProbedFeed], agreements: Sequence[TpAgreement] = ()
) -> str:
    """Every pair's difference, what traces at two TP sizes agree on, and what the probes saw above tp 1."""
    parts = [*map(str, pairs), *map(str, agreements)]
    fault = parallel_fault(feeds)
    wide = [feed for feed in feeds if feed.config.tp_size > 1]
    if fault is not None:
        parts.append(fault.sentence().rstrip("."))
    elif wide and all(feed.report is not None and feed.report.fault is None for feed in wide):
        parts.append(f"probed at tp {wide[0].config.tp_size}: every rank is fed whole hidden states, all alike")
    return "; ".join(parts)
