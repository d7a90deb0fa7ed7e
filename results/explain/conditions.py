"""Conditions of measurement that look like one of the three causes: cache, context length, sampling, harness."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from results.explain.comparison import compare
from results.explain.reading import Reading
from results.stats.effects import Answer
from results.verdicts import OtherVerdict
from search_spaces.flag_rules import RUNNING_CAP

WARM_SHARE = 0.01
"""Share of cached prompt tokens from which a rerun is warm (vLLM PR #53920 warns from there)."""


def is_warm(reading: Reading) -> bool:
    return (reading.row.cached_token_share or 0.0) >= WARM_SHARE


def cache(readings: Sequence[Reading]) -> OtherVerdict | None:
    """A warm prefix cache: throughput of such a row is no measurement of the configuration."""
    warm = [reading for reading in readings if is_warm(reading)]
    if warm:
        row = warm[0].row
        cold = [
            r.row.output_throughput
            for r in readings
            if not is_warm(r) and r.row.output_throughput and r.config == warm[0].config
        ]
        faster = f" ({row.output_throughput / cold[0]:.2f} x the cold run)" if cold and row.output_throughput else ""
        rate = f", {row.output_throughput:g} tok/s{faster}" if row.output_throughput else ""
        return OtherVerdict(
            kind="cache",
            verdict="yes",
            evidence=f"{warm[0].name} is warm: {row.cached_token_share:.0%} of its prompt tokens came from the prefix"
            f" cache{rate}; excluded from ranking. Flush between runs, or use other prompts",
        )
    known = [r for r in readings if r.row.cached_token_share is not None or r.row.radix_cache is False]
    if known:
        return OtherVerdict(
            kind="cache", verdict="no", evidence=f"no prompt was measured on a warm cache ({known[0].name})"
        )
    return None


def context_length(readings: Sequence[Reading]) -> OtherVerdict | None:
    """Accept length against context length, everything else equal."""
    by_rest: dict[tuple[object, ...], list[Reading]] = {}
    for reading in readings:
        if reading.accept_length and reading.row.context_tokens is not None:
            row = reading.row
            rest = (reading.model, reading.config, reading.layout, reading.parallelism, row.temperature or 0.0)
            by_rest.setdefault(rest, []).append(reading)
    verdicts = [_over_lengths(series) for series in by_rest.values()]
    found = [verdict for verdict in verdicts if verdict is not None]
    order = {"yes": 0, "undecided": 1, "no": 2}
    return min(found, key=lambda verdict: order[verdict.verdict], default=None)


def _over_lengths(series: list[Reading]) -> OtherVerdict | None:
    series = sorted(series, key=lambda reading: reading.row.context_tokens or 0)
    short, long = series[0], series[-1]
    against = compare(short, long)
    if against is None or short.row.context_tokens == long.row.context_tokens:
        return None
    text = ", ".join(f"{r.accept_length:.2f} at {r.row.context_tokens} tokens" for r in series)
    if against.relative < 0 and against.different == "yes":
        return OtherVerdict(
            kind="context_length",
            verdict="yes",
            evidence=f"accept length falls with the context: {text}. The draft's position range"
            " (max_position_embeddings, rope) is the suspect: check the draft's config against the target's",
        )
    answer: Answer = "no" if against.relative >= 0 or against.different == "no" else "undecided"
    return OtherVerdict(kind="context_length", verdict=answer, evidence=f"accept length over contexts: {text}")


def shortest_contexts(readings: Sequence[Reading]) -> list[Reading]:
    """Only the shortest context of each configuration: the readings that a position range does not spoil."""
    lengths = [r.row.context_tokens for r in readings if r.row.context_tokens is not None]
    return [r for r in readings if r.row.context_tokens in (None, min(lengths, default=None))]


def sampling(readings: Sequence[Reading]) -> OtherVerdict | None:
    """A temperature above zero lowers acceptance by itself."""
    hot = [reading for reading in readings if (reading.row.temperature or 0.0) > 0]
    if not hot:
        cold = [reading for reading in readings if reading.row.temperature == 0]
        text = "all rows that say so were measured at temperature 0"
        return OtherVerdict(kind="sampling", verdict="no", evidence=text) if cold else None
    for first in hot:
        for second in readings:
            same = (first.model, first.config, first.layout, first.parallelism) == (
                second.model,
                second.config,
                second.layout,
                second.parallelism,
            )
            against = compare(second, first) if same and not second.row.temperature else None
            if against is not None:
                fell = against.relative < 0
                return OtherVerdict(
                    kind="sampling",
                    verdict=against.different if fell else "no",
                    evidence=f"temperature {first.row.temperature:g} against 0, nothing else changed: {against}",
                )
    return OtherVerdict(
        kind="sampling",
        verdict="undecided",
        evidence=f"{hot[0].name} was measured at temperature {hot[0].row.temperature:g}, which lowers acceptance by"
        " itself; measure at temperature 0",
    )


def harness(readings: Sequence[Reading]) -> OtherVerdict | None:
    """Limits of the server or the client that make a comparison unfair."""
    reasons = [reason for reading in readings for reason in (*_limits(reading), *_deaths(reading))]
    if reasons:
        return OtherVerdict(kind="harness", verdict="yes", evidence="; ".join(dict.fromkeys(reasons)))
    without = [reading for reading in readings if reading.speculative and reading.row.cuda_graph is False]
    if without:
        mixed = any(reading.row.cuda_graph for reading in readings)
        text = f"{without[0].name}: decoding ran without CUDA graphs, which costs throughput and not accept length"
        text += "; another row had them, so their throughputs do not compare" if mixed else ""
        return OtherVerdict(kind="harness", verdict="yes" if mixed else "undecided", evidence=text)
    speculative = [reading for reading in readings if reading.speculative]
    if (load := _over_load(speculative)) is not None:
        return load
    cleared = ["concurrency is below the cap"] if any(r.row.concurrency is not None for r in speculative) else []
    cleared += ["CUDA graphs were on"] if any(r.row.cuda_graph for r in speculative) else []
    return OtherVerdict(kind="harness", verdict="no", evidence=" and ".join(cleared)) if cleared else None


def _over_load(readings: Sequence[Reading]) -> OtherVerdict | None:
    """Accept length that moves with the number of requests in flight, everything else equal."""
    for first, second in combinations(readings, 2):
        loads = (first.row.concurrency, second.row.concurrency)
        if None in loads or loads[0] == loads[1] or first.setup != second.setup:
            continue
        against = compare(first, second)
        if against is not None and against.different == "yes":
            return OtherVerdict(
                kind="harness",
                verdict="undecided",
                evidence=f"accept length {first.accept_length:.2f} at concurrency {loads[0]} and"
                f" {second.accept_length:.2f} at {loads[1]}, nothing else named differs: compare at one load, on the"
                " same prompts",
            )
    return None


def _deaths(reading: Reading) -> list[str]:
    if reading.row.death is None or reading.row.death.kind != "oom":
        return []
    return [
        f"{reading.name}: the server ran out of memory ({reading.row.death.line}): a failed launch, no accept length of"
        " 0; take a smaller tree, a lower --mem-fraction-static or --cuda-graph-max-bs"
    ]


def _limits(reading: Reading) -> list[str]:
    row, reasons = reading.row, []
    if not reading.speculative:
        return []
    if _on(row.flags.get("SGLANG_IS_IN_CI")):
        reasons.append(f"{reading.name}: SGLANG_IS_IN_CI is set, so benchmarks flush the cache and limits differ")
    cap = row.max_running_requests or RUNNING_CAP
    if row.concurrency is not None and row.concurrency > cap:
        unset = "" if row.max_running_requests else " (unset, so SGLang sets it with speculation and not without)"
        reasons.append(
            f"{reading.name}: at most {cap} requests run at once, max_running_requests{unset}; {row.concurrency - cap}"
            f" of {row.concurrency} wait in the queue: throughput against a baseline without that cap is unfair"
        )
    return reasons


def _on(value: object) -> bool:
    return str(value).strip().lower() in ("1", "1.0", "true", "yes", "on")
