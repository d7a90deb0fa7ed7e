"""Output throughput and latencies of a cell, from per-request timestamps.

The unit of a throughput's interval is the prompt. In a closed loop, duration = (busy + idle time of the slots) / slots,
and busy is the sum of the latencies; prompts are drawn anew and sent through the slots again
(`results/closed_loop.py`). The interval therefore covers which prompts were drawn and how the cell ended, not how one
launch differs from the next: that is the noise floor's part (`results/noise.py`).
In an open loop the load sets the requests per second, so what is resampled is the tokens per request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from results.closed_loop import closed_loop_throughput
from results.observations import RequestRow
from results.stats.quantiles import quantile_interval
from results.stats.ratios import ratio_of_sums
from results.summary import Estimate

MIN_STEADY_SHARE = 0.2
"""A steady window shorter than this share of the cell is too short to speak for it."""


@dataclass(frozen=True, kw_only=True)
class SteadyWindow:
    """The part of a cell, in its own seconds, during which all of its slots were busy."""

    start_s: float
    end_s: float


def mean_in_flight(rows: Sequence[RequestRow], duration_s: float) -> float:
    """Time-averaged number of requests being served, failed ones included."""
    return sum(row.finished_s - row.sent_s for row in rows) / duration_s


def most_in_flight(rows: Sequence[RequestRow]) -> int:
    """The largest number of requests that were unanswered at one time, failed ones included."""
    # at one moment an end comes before a beginning: a slot that takes its next prompt holds one request, not two
    events = sorted([(row.sent_s, 1) for row in rows] + [(row.finished_s, -1) for row in rows])
    return max(accumulate(change for _, change in events), default=0)


def output_throughput(
    rows: Sequence[RequestRow], duration_s: float, *, slots: int | None = None, prompts: int | None = None
) -> Estimate | str:
    """Tokens per second over the whole cell with its interval over prompts, or why there is none.

    `rows` are the requests that succeeded. `slots` is the concurrency of a closed loop, None for an open one. `prompts`
    is given when a closed loop stopped early, and is how many it would have sent: the throughput is then the whole
    set's. Slots run empty one by one at the end of a cell; that is paid once, whatever the number of prompts, so a cell
    that stopped early would look slower than a whole one.
    """
    if duration_s <= 0:
        return "the cell has no duration"
    tokens: dict[str, float] = defaultdict(float)
    busy_s: dict[str, float] = defaultdict(float)
    for row in sorted(rows, key=lambda row: row.sent_s):
        tokens[row.prompt_id] += row.completion_tokens
        busy_s[row.prompt_id] += duration_s / len(rows) if slots is None else row.finished_s - row.sent_s
    if sum(tokens.values()) == 0:
        return "no request completed with a token"
    if sum(busy_s.values()) <= 0:
        return "the requests have no duration"
    taken, busy = list(tokens.values()), list(busy_s.values())
    if slots is None:
        rate, value = ratio_of_sums(taken, busy), sum(taken) / duration_s
        # of answers that are all equally long the interval is a point, and by rounding another one than the value
        return Estimate(value=value, low=min(rate.low, value), high=max(rate.high, value), count=rate.count)
    used = min(slots, len(rows))
    share = 1.0 if prompts is None else max(1.0, prompts / len(rows))
    return closed_loop_throughput(taken, busy, slots=used, duration_s=duration_s, share=share)


def steady_window(rows: Sequence[RequestRow], concurrency: int, duration_s: float) -> SteadyWindow | str:
    """Without ramp-up and drain, or why there is no such window.

    Ramp-up ends when the first `concurrency` requests have their first token; the drain begins with the first end after
    the last request was sent.
    """
    if concurrency < 1:
        return "an open loop has no slots to keep busy"
    ordered = sorted(rows, key=lambda row: row.sent_s)
    if len(ordered) < 2 * concurrency:
        return f"{len(ordered)} requests are fewer than two rounds at concurrency {concurrency}"
    start = max(row.sent_s if row.first_token_s is None else row.first_token_s for row in ordered[:concurrency])
    last_sent = ordered[-1].sent_s
    end = min((row.finished_s for row in ordered if row.finished_s >= last_sent), default=last_sent)
    if end - start < MIN_STEADY_SHARE * duration_s:
        return "ramp-up and drain leave less than a fifth of the cell"
    return SteadyWindow(start_s=start, end_s=end)


def _tokens_within(row: RequestRow, window: SteadyWindow) -> float:
    """Tokens that arrived inside the window; without chunk times, tokens are spread evenly over the request."""
    if row.chunk_times_s:
        pairs = zip(row.chunk_times_s, row.chunk_tokens, strict=True)
        return sum(count for at, count in pairs if window.start_s < at <= window.end_s)
    begin = row.sent_s if row.first_token_s is None else row.first_token_s
    overlap = min(row.finished_s, window.end_s) - max(begin, window.start_s)
    length = row.finished_s - begin
    return row.completion_tokens * max(0.0, overlap) / length if length > 0 else 0.0


def steady_throughput(rows: Sequence[RequestRow], concurrency: int, duration_s: float) -> float | str:
    """Tokens per second inside the steady window, or why there is none."""
    window = steady_window(rows, concurrency, duration_s)
    if isinstance(window, str):
        return window
    return sum(_tokens_within(row, window) for row in rows) / (window.end_s - window.start_s)


def ttft_ms(rows: Sequence[RequestRow]) -> list[float]:
    """Time to the first token of every request that streamed one, in milliseconds."""
    return [(row.first_token_s - row.sent_s) * 1e3 for row in rows if row.first_token_s is not None]


def tpot_ms(rows: Sequence[RequestRow]) -> list[float]:
    """(end - first token) / (tokens - 1) of every request with at least two tokens, in milliseconds.

    By token counts, not by chunks: a speculative server sends several tokens in one chunk.
    """
    return [
        (row.finished_s - row.first_token_s) / (row.completion_tokens - 1) * 1e3
        for row in rows
        if row.first_token_s is not None and row.completion_tokens > 1
    ]


def itl_ms(rows: Sequence[RequestRow]) -> list[float]:
    """Milliseconds between two successive arrivals of one request, for every request that streamed.

    A time between tokens only where every arrival carries one token: see `tokens_per_chunk`.
    """
    return [(later - earlier) * 1e3 for row in rows for earlier, later in pairwise(row.chunk_times_s)]


def e2e_ms(rows: Sequence[RequestRow]) -> list[float]:
    """Milliseconds from a request's first sending to its end, failed attempts and the pauses after them included.

    Empty when that is not known of one of them: those that were sent again are the slowest.
    """
    known = [row.e2e_s for row in rows]
    return [] if None in known else [seconds * 1e3 for seconds in known if seconds is not None]


def tokens_per_chunk(rows: Sequence[RequestRow]) -> float | None:
    """Tokens per arrival after the first one of each request; None when nothing arrived after a first one."""
    carried = [tokens for row in rows for tokens in row.chunk_tokens[1:]]
    return sum(carried) / len(carried) if carried else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linear interpolation between order statistics; None without values."""
    return float(np.percentile(np.asarray(values), percent)) if values else None


def steady_interval(rows: Sequence[RequestRow], concurrency: int, duration_s: float) -> tuple[float, float] | None:
    """The 95 % interval of the steady throughput over prompts; None without one.

    The slots are always busy, so it is their number times tokens per second of latency. The window holds only a part of
    the cell's tokens, and the spread grows with the root of what it leaves out.
    """
    window = steady_window(rows, concurrency, duration_s)
    value = steady_throughput(rows, concurrency, duration_s)
    if isinstance(window, str) or isinstance(value, str) or value <= 0:
        return None
    pairs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        pairs[row.prompt_id][0] += row.completion_tokens
        pairs[row.prompt_id][1] += row.finished_s - row.sent_s
    rate = ratio_of_sums([tokens for tokens, _ in pairs.values()], [busy for _, busy in pairs.values()])
    if len(pairs) < 2 or rate.low <= 0:
        return None
    grown = (duration_s / (window.end_s - window.start_s)) ** 0.5
    return value * (rate.low / rate.value) ** grown, value * (rate.high / rate.value) ** grown


def latency_intervals(latencies: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """The 95 % intervals of the percentiles that a summary states, over requests; without those that have none.

    `latencies` has one value a request, by prefix (`ttft_ms`).
    """
    found = {}
    for name, values in latencies.items():
        for percent in (50, 99):
            interval = quantile_interval(values, percent / 100)
            if interval is not None:
                found[f"{name}_p{percent}"] = interval
    return found
