"""Degenerate text: outputs that loop or repeat a few tokens, on which every draft looks good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WINDOW = 256
"""Bigrams are counted in windows of this many, so that the share does not fall with the output's length alone."""

MIN_TOKENS = 32
"""Shorter outputs are not judged."""

MAX_PERIOD = 64
LOOP_SHARE = 0.5
MIN_BIGRAM_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class TextStatistics:
    """What the output ids of a cell look like. `bigram_share` is None when no output has two tokens."""

    judged: int
    degenerate: int
    degenerate_token_share: float
    bigram_share: float | None
    distinct_tokens: int


def _distinct_bigrams(ids: NDArray[np.int64]) -> tuple[int, int]:
    """(distinct within windows, all) bigrams of one output."""
    bigrams = (ids[:-1] << 32) | ids[1:]
    distinct = sum(len(np.unique(bigrams[start : start + WINDOW])) for start in range(0, len(bigrams), WINDOW))
    return distinct, len(bigrams)


def trailing_loop(ids: Sequence[int]) -> tuple[int, int]:
    """(period, length) of the longest loop of three rounds or more at the end of an output; (0, 0) without one."""
    array = np.asarray(ids, dtype=np.int64)
    best = (0, 0)
    for period in range(1, min(MAX_PERIOD, len(array) // 3) + 1):
        unequal = np.flatnonzero(array[period:] != array[:-period])
        length = len(array) - (int(unequal[-1]) + 1 if len(unequal) else 0)
        if length >= 3 * period and length > best[1]:
            best = (period, length)
    return best


def is_degenerate(ids: Sequence[int]) -> bool:
    """True when at least half of an output is a loop at its end, or under a tenth of its bigrams are distinct."""
    if len(ids) < MIN_TOKENS:
        return False
    distinct, bigrams = _distinct_bigrams(np.asarray(ids, dtype=np.int64))
    return distinct / bigrams < MIN_BIGRAM_SHARE or trailing_loop(ids)[1] >= LOOP_SHARE * len(ids)


def text_statistics(outputs: Sequence[Sequence[int]]) -> TextStatistics:
    """Statistics over the outputs of a cell; outputs under 32 tokens count as neither judged nor degenerate."""
    judged = [ids for ids in outputs if len(ids) >= MIN_TOKENS]
    degenerate = [ids for ids in judged if is_degenerate(ids)]
    counted = [_distinct_bigrams(np.asarray(ids, dtype=np.int64)) for ids in outputs if len(ids) >= 2]
    bigrams = sum(total for _, total in counted)
    judged_tokens = sum(len(ids) for ids in judged)
    return TextStatistics(
        judged=len(judged),
        degenerate=len(degenerate),
        degenerate_token_share=sum(len(ids) for ids in degenerate) / judged_tokens if judged_tokens else 0.0,
        bigram_share=sum(distinct for distinct, _ in counted) / bigrams if bigrams else None,
        distinct_tokens=len({token for ids in outputs for token in ids}),
    )
