"""When a closed-loop cell has seen enough: its intervals are narrow, or it is clearly worse than the best so far.

Meant to be asked now and then while the cell runs (every few finished requests); pure, and quick, as the client that
measures must not wait for it. What is stopped early has seen fewer prompts, the first ones of the workload's order, so
comparisons stay paired on the prompts that both saw.

Stopping at the first look at which the interval is narrow prefers the looks at which the spread is underestimated, so
intervals hold the truth less often than they say. Y. S. Chow and H. Robbins ("On the asymptotic theory of fixed-width
sequential confidence intervals for the mean", Annals of Mathematical Statistics 36, 1965) show that this vanishes as
the width asked for goes to 0; it remains where few prompts suffice. In simulated cells with looks from 16 prompts on,
93 of 100 intervals held the truth; a stricter width, or asking for two narrow looks in a row, hardly mended that; looks
from 32 prompts on did, and cells that need more prompts anyway are as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from results.cell_acceptance import acceptance_pairs
from results.cells import throughput_pairs
from results.observations import RequestRow
from results.stats.ratios import Pair, ratio_of_sums
from results.summary import Estimate
from search_spaces.config import Triple

_DOMINATED_LEVEL = 0.998
"""A cell is looked at many times; a rare level keeps the chance of a wrong dismissal small over all looks."""

_NARROW_PROMPTS = 32
"""So many prompts must have been answered before a narrow interval is believed."""


@dataclass(frozen=True, kw_only=True)
class Rival:
    """The best setting so far: its throughput at one concurrency, and by how much launches differ anyway."""

    concurrency: int
    throughput: Estimate
    noise: float


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """`half_width` is relative, of the 95 % intervals of throughput and accept length.

    `rival` is the throughput of the best setting so far, `noise` the relative difference that launches show anyway.
    """

    half_width: float = 0.02
    min_prompts: int = 16
    rival: Estimate | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.half_width < 1 or self.min_prompts < 2:
            raise ValueError(f"half_width {self.half_width} must be within (0, 1), min_prompts {self.min_prompts} >= 2")


def stop_reason(rows: Sequence[RequestRow], concurrency: int, triple: Triple | None, rule: StopRule) -> str | None:
    """Why the cell may stop now, in a sentence; None to go on.

    `rows` are the requests finished so far. It never stops before `min_prompts` prompts and two rounds of the slots,
    nor for being narrow before 32 prompts.
    """
    speed = throughput_pairs(rows)
    if len(speed) < max(rule.min_prompts, 2 * concurrency) or sum(latency for _, latency in speed.values()) <= 0:
        return None
    if rule.rival is not None:
        ours = _ratio(speed, level=_DOMINATED_LEVEL)
        most = ours.high * concurrency * (1 + rule.noise)
        if most < rule.rival.low:
            return (
                f"dominated after {len(speed)} prompts: at most {most:.1f} tokens/s, the best setting so far at least "
                f"{rule.rival.low:.1f}"
            )
    if len(speed) < _NARROW_PROMPTS:
        return None
    widths = [_ratio(speed).relative_half_width]
    if triple is not None:
        # proposed drafts say nothing about the width, and a switched server counts them wrongly until its cell is
        # mended (`results/switched_counters.py`): such a cell would never stop
        accepted = acceptance_pairs([replace(row, proposed_drafts=None) for row in rows], triple)
        if len(accepted) < rule.min_prompts:
            return None
        widths.append(_ratio(accepted).relative_half_width)
    if max(widths) > rule.half_width:
        return None
    return f"narrow enough after {len(speed)} prompts: half-width {max(widths):.1%}, {rule.half_width:.1%} was asked"


def _ratio(pairs: Mapping[str, Pair], level: float = 0.95) -> Estimate:
    return ratio_of_sums([above for above, _ in pairs.values()], [below for _, below in pairs.values()], level=level)
