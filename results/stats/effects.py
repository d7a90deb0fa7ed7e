"""The three answers on an effect: yes, no, cannot tell; and how many prompts would decide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from results.summary import Estimate

Answer = Literal["yes", "no", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether an effect is there. `more_prompts` is how many further prompts would decide an undecided one.

    It is None when the answer is decided, and also when no number of prompts can decide (the effect sits on the
    margin); `reason` says which in words.
    """

    answer: Answer
    more_prompts: int | None
    reason: str


def effect_verdict(effect: Estimate, margin: float) -> Verdict:
    """Yes: the interval excludes 0 and the size exceeds the margin. No: the interval lies within the margin.

    Undecided otherwise. The number of prompts assumes a half-width that shrinks with the square root of their number.
    """
    if margin <= 0:
        raise ValueError(f"the margin must be positive, not {margin}")
    span = f"{effect.value:+.3g} [{effect.low:+.3g}, {effect.high:+.3g}]"
    if effect.count >= 2 and -margin <= effect.low and effect.high <= margin:
        return Verdict(answer="no", more_prompts=None, reason=f"{span} lies within the margin of {margin:.3g}")
    if effect.count >= 2 and (effect.low > 0 or effect.high < 0) and abs(effect.value) > margin:
        return Verdict(
            answer="yes", more_prompts=None, reason=f"{span} excludes 0 and exceeds the margin of {margin:.3g}"
        )
    more = _more_prompts(effect, margin)
    advice = f"about {more} more prompts would decide" if more is not None else "the effect sits on the margin"
    return Verdict(answer="undecided", more_prompts=more, reason=f"{span} against the margin of {margin:.3g}: {advice}")


def _more_prompts(effect: Estimate, margin: float, at_most: int = 1_000_000) -> int | None:
    half_width = (effect.high - effect.low) / 2
    if effect.count < 2:
        return 20
    size = abs(effect.value)
    # Above the margin it takes an interval that excludes 0; below, one that stays inside the margin.
    target = size if size > margin else margin - size
    if target <= 0:
        return None
    needed = math.ceil(effect.count * (half_width / target) ** 2 * 1.05)
    return max(1, needed - effect.count) if needed - effect.count <= at_most else None
