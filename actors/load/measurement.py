"""Warm-up and the measurement of one cell: synchronous calls that run their own event loop.

They belong to whoever drives the engine and must not be called from a running event loop. Failure is a value here.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Sequence

from actors.load.arrivals import closed_loop, open_loop, poisson_arrivals
from actors.load.client import CellClock, GenerateClient, Sent
from actors.load.early_stop import EarlyStop
from actors.load.event_loop import run_to_end
from actors.load.server_state import Counters, flush_when_idle, read_accept_length, read_counters
from actors.load.watched_load import FailureNow, LagMeter, Loop, run_load, unless_dead
from actors.load.workload import Prompt, Workload
from results.failures import Failure
from results.observations import CellObservation
from results.stopping import Rival, StopRule, stop_reason
from search_spaces.config import Triple

logger = logging.getLogger(__name__)

FLUSH_TIMEOUT_S = 30.0
_WARMUP_TOKENS = 32
_LEAST_PATIENCE = 3


def never_dead() -> Failure | None:
    """For a server that nobody here has started: its death shows in its silence alone."""
    return None


def warm_up(base_url: str, workload: Workload, *, failure_now: FailureNow = never_dead) -> Failure | None:
    """Send the held-out prompts at the workload's highest concurrency; their answers are thrown away.

    Prompts are repeated until every slot was filled once, answers are cut at 32 tokens. None when at least one request
    was answered, else the cause with phase `warmup`. Nothing is sent without warm-up prompts.
    """
    if not workload.warmup:
        return None
    slots = max(workload.concurrency, default=1)
    prompts = list(itertools.islice(itertools.cycle(workload.warmup), max(slots, len(workload.warmup))))

    async def run() -> list[Sent] | Failure:
        async with GenerateClient(base_url, workload) as client:
            clock = CellClock()
            tokens = min(workload.max_new_tokens, _WARMUP_TOKENS)
            return await run_load(
                lambda send: closed_loop(prompts, slots, send),
                lambda prompt: client.send(prompt, clock, max_new_tokens=tokens),
                patience=max(slots, _LEAST_PATIENCE),
                failure_now=failure_now,
                phase="warmup",
            )

    sent = run_to_end(run())
    return sent if isinstance(sent, Failure) else None


def measure_cell(
    base_url: str,
    workload: Workload,
    concurrency: int,
    *,
    failure_now: FailureNow,
    request_rate: float | None = None,
    flush_timeout_s: float = FLUSH_TIMEOUT_S,
    triple: Triple | None = None,
    rival: Rival | None = None,
) -> CellObservation | Failure:
    """Flush the prefix cache, then send every prompt of the workload once and keep what was seen.

    Closed loop with `concurrency` requests in flight; or, with `request_rate` (per second), an open loop with Poisson
    arrivals, for which `concurrency` must be 0. Blocks until the last answer. Failed requests stay in the rows with
    their `error`. A Failure (phase `measure`) is returned when the server dies, soon after `failure_now` says so; when
    every request failed; or when the server answers nobody: as many requests as run at once, and at least three, found
    no connection or no answer in time and none succeeded between them (a refusal is an answer). A cache that could not
    be flushed is no failure but `flush_verified` False.

    A closed loop stops sending as soon as the workload's `half_width` is reached, for the accept length as well when
    the server drafts by `triple`, or when it is clearly slower than the `rival` at this concurrency.
    """
    if (concurrency < 1) if request_rate is None else (concurrency != 0):
        raise ValueError(f"concurrency {concurrency} with request_rate {request_rate}")
    return run_to_end(
        _measure(
            base_url,
            workload,
            concurrency,
            request_rate,
            failure_now=failure_now,
            flush_timeout_s=flush_timeout_s,
            early=_early_stop(workload, concurrency, request_rate, triple, rival),
        )
    )


def measure_cells(
    base_url: str,
    workload: Workload,
    *,
    failure_now: FailureNow,
    triple: Triple | None = None,
    rival: Rival | None = None,
) -> tuple[tuple[CellObservation, ...], Failure | None]:
    """Every cell of the workload, concurrencies before request rates; the cells measured before a Failure are kept."""
    loads: list[tuple[int, float | None]] = [(concurrency, None) for concurrency in workload.concurrency]
    loads += [(0, rate) for rate in workload.request_rate]
    cells: list[CellObservation] = []
    for concurrency, rate in loads:
        cell = measure_cell(
            base_url,
            workload,
            concurrency,
            failure_now=failure_now,
            request_rate=rate,
            triple=triple,
            rival=rival,
        )
        if isinstance(cell, Failure):
            return tuple(cells), cell
        cells.append(cell)
    return tuple(cells), None


async def _measure(
    base_url: str,
    workload: Workload,
    concurrency: int,
    request_rate: float | None,
    *,
    failure_now: FailureNow,
    flush_timeout_s: float,
    early: EarlyStop | None,
) -> CellObservation | Failure:
    url = base_url.rstrip("/")
    async with GenerateClient(url, workload) as client:
        flushing = flush_when_idle(client.session, url, timeout_s=flush_timeout_s)
        flush_reason = await unless_dead(flushing, failure_now, "measure")
        if isinstance(flush_reason, Failure):
            return flush_reason
        if flush_reason is not None:
            logger.warning("the prefix cache was not flushed: %s", flush_reason)
        before = await read_counters(client.session, url)
        started_at = time.time()
        clock = CellClock()
        lag = LagMeter()

        async def send(prompt: Prompt) -> Sent:
            return await client.send(prompt, clock)

        sent = await run_load(
            _loop(workload, concurrency, request_rate, early),
            send if early is None else early.watched(send),
            patience=max(concurrency, _LEAST_PATIENCE),
            failure_now=failure_now,
            phase="measure",
            lag=lag,
        )
        if early is not None:
            await early.close()
        if isinstance(sent, Failure):
            return sent
        after = await read_counters(client.session, url)
        tokens, verify_steps, counted_reason = _counted(before, after)
        accept_length, accept_reason = await read_accept_length(client.session, url)
    if accept_length is not None and flush_reason is not None:
        accept_length, accept_reason = None, "not reset before the cell, so it covers earlier requests as well"
    return CellObservation(
        concurrency=concurrency,
        request_rate=request_rate,
        workload_id=workload.workload_id,
        started_at_unix_s=started_at,
        duration_s=max(answer.row.finished_s for answer in sent),
        flush_verified=flush_reason is None,
        flush_reason=flush_reason,
        server_accept_length=accept_length,
        server_accept_length_reason=accept_reason,
        counted_tokens=tokens,
        counted_verify_steps=verify_steps,
        counted_reason=counted_reason,
        attempt_failures=_failures_by_reason(sent),
        shared_prefix_share=workload.shared_prefix_share,
        client_lag_s=lag.longest_s,
        stopped=early.reason if early is not None and len(sent) < len(workload.prompts) else None,
        prompts=len(workload.prompts),
        rows=tuple(answer.row for answer in sent),
    )


def _early_stop(
    workload: Workload, concurrency: int, request_rate: float | None, triple: Triple | None, rival: Rival | None
) -> EarlyStop | None:
    """None for an open loop, whose prompts arrive when they do, and where every prompt is to be sent."""
    if workload.half_width is None or request_rate is not None:
        return None
    meets = rival is not None and rival.concurrency == concurrency
    rule = StopRule(
        half_width=workload.half_width,
        min_prompts=workload.min_prompts,
        rival=rival.throughput if rival is not None and meets else None,
        noise=rival.noise if rival is not None and meets else 0.0,
    )
    return EarlyStop(lambda rows: stop_reason(rows, concurrency, triple, rule), concurrency)


def _loop(workload: Workload, concurrency: int, request_rate: float | None, early: EarlyStop | None) -> Loop:
    if request_rate is None and early is not None:
        return lambda send: closed_loop(workload.prompts, concurrency, send, enough=early.enough)
    if request_rate is None:
        return lambda send: closed_loop(workload.prompts, concurrency, send)
    arrivals_s = poisson_arrivals(len(workload.prompts), request_rate, workload.arrival_seed)
    return lambda send: open_loop(workload.prompts, arrivals_s, send)


def _failures_by_reason(sent: Sequence[Sent]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(reason for answer in sent for reason in answer.attempt_failures).items()))


def _counted(before: Counters | str, after: Counters | str) -> tuple[int | None, int | None, str | None]:
    """What the server's counters rose by, or why that is unknown."""
    if isinstance(before, str):
        return None, None, before
    if isinstance(after, str):
        return None, None, after
    tokens, steps = after.tokens - before.tokens, after.verify_steps - before.verify_steps
    if tokens < 0 or steps < 0:
        return None, None, "the server's counters went backwards"
    return tokens, steps, None
