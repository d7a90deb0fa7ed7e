"""An attribution when a corner could not be measured: what its value could change is part of every interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from results.attribution import (
    DEFAULT_MARGIN,
    GROUPS,
    Attribution,
    Corner,
    Group,
    attribute,
    corners,
    dividend_weights,
    shapley_weights,
)
from results.stats.effects import Verdict, effect_verdict
from results.stats.ratios import Pair
from results.summary import Estimate

LOWEST = 1.0
"""An accept length without a single accepted draft."""


def attribute_bounded(
    measured: Mapping[Corner, Mapping[str, Pair]],
    ceilings: Mapping[Corner, float],
    *,
    differing: Iterable[Group] = GROUPS,
    margin: float = DEFAULT_MARGIN,
    repeat_noise: float = 0.0,
    seed: int = 0,
) -> Attribution:
    """Like `attribute`, with corners missing between the two ends.

    An unmeasured accept length lies between 1 and its corner's ceiling. Shares are linear in it, so each share's
    interval spans both extremes, and a verdict that holds at both holds whatever the corner would give. A share is then
    the middle of its extremes. ValueError when an end is missing, or the ceiling of a missing corner.
    """
    wanted = set(differing)
    players = tuple(group for group in GROUPS if group in wanted)
    needed = corners(players)
    missing = [corner for corner in needed if corner not in measured]
    if frozenset() in missing or frozenset(players) in missing:
        raise ValueError("an end of the gap is not measured")

    def at(high: Mapping[Corner, bool]) -> Attribution:
        prompts = set.intersection(*(set(pairs) for corner, pairs in measured.items() if corner in needed))
        values = {corner: ceilings[corner] if high[corner] else LOWEST for corner in missing}
        filled = {corner: dict.fromkeys(prompts, (value, 1.0)) for corner, value in values.items()}
        return attribute({**measured, **filled}, differing=players, margin=margin, repeat_noise=repeat_noise, seed=seed)

    if not missing:
        return at({})
    base = at(dict.fromkeys(missing, False))
    shares, verdicts = dict(base.shares), dict(base.verdicts)
    for group in players:
        weights = shapley_weights(players, group)
        low = at({corner: weights[corner] < 0 for corner in missing}).shares[group]
        high = at({corner: weights[corner] > 0 for corner in missing}).shares[group]
        shares[group] = Estimate(
            value=(low.value + high.value) / 2, low=low.low, high=high.high, count=min(low.count, high.count)
        )
        verdicts[group] = _verdict(shares[group], base.margin)
    known = {part: it for part, it in base.interactions.items() if not set(missing) & set(dividend_weights(part))}
    return replace(base, shares=shares, verdicts=verdicts, interactions=known)


def _verdict(share: Estimate, margin: float) -> Verdict:
    verdict = effect_verdict(share, margin)
    if verdict.answer != "undecided":
        return verdict
    span = f"between {share.low:+.3g} and {share.high:+.3g}, depending on a corner that is not measured"
    return Verdict(answer="undecided", more_prompts=None, reason=span)
