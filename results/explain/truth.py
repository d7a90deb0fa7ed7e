"""Rows whose numbers are not what they seem: simulated acceptance, degenerate text, contradictory metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from typing import Any

from results.explain.comparison import compare
from results.explain.reading import Reading
from results.server_info import RUNNING_AVERAGE
from results.verdicts import OtherVerdict
from search_spaces.layouts import one_apart

SIMULATE = "SGLANG_SIMULATE_ACC_LEN"
SAME_LENGTH = 0.005
"""Accept lengths of different layouts closer than this, relative, are not a coincidence."""
MIN_JUDGED_TOKENS = 32
_RANDOM = re.compile(r"\brandom\b|random[-_ ]?(ids|tokens|prompt|input)", re.IGNORECASE)


def _forced(reading: Reading) -> Any:
    """The forced accept length among the flags, under any spelling of the variable; None without one."""
    found = [value for name, value in reading.row.flags.items() if "SIMULATE_ACC_LEN" in name.upper().replace("-", "_")]
    return found[0] if found else None


def is_simulated(reading: Reading) -> bool:
    value = _forced(reading)
    try:
        return float(value) > 0 if value is not None else False
    except (TypeError, ValueError):
        return bool(value)


def simulated(readings: Sequence[Reading]) -> OtherVerdict | None:
    """Simulated acceptance: said by a flag or a log, or seen in one accept length for layouts that cannot share it."""
    told = [reading for reading in readings if is_simulated(reading)]
    if told:
        value = _forced(told[0])
        return OtherVerdict(
            kind="simulated",
            verdict="yes",
            evidence=f"simulated acceptance is on: {SIMULATE}={value} in {told[0].name}; nothing about the draft"
            " follows from these rows; unset it where the server starts and measure again",
        )
    same = _equal_over_layouts(readings)
    if same is None:
        return None
    lengths, layouts, sure = same
    return OtherVerdict(
        kind="simulated",
        verdict="yes" if sure else "undecided",
        evidence=f"accept length {lengths[0]:.2f} for {layouts} different layouts"
        + (", a deliberately wrong one among them" if sure == "control" else "")
        + f": one draft cannot be right for all of them; simulated acceptance left on? Look for {SIMULATE} in the"
        " server's environment",
    )


def _equal_over_layouts(readings: Sequence[Reading]) -> tuple[list[float], int, str] | None:
    """Groups of readings of one draft that differ in layout and agree in accept length far too well."""
    usable = [r for r in readings if r.accept_length and r.accept_length > 1.05 and r.layout_known]
    for first in usable:
        rest = [r for r in usable if r.config == first.config and r.model == first.model]
        group = [
            r
            for r in rest
            if abs((r.accept_length or 0) - (first.accept_length or 0)) <= SAME_LENGTH * (first.accept_length or 1)
        ]
        layouts = {r.layout for r in group}
        drafts = {r.row.trained_taps for r in group}
        own = all(r.row.trained_taps is not None and r.row.trained_taps == r.taps for r in group)
        if len(layouts) < 2 or len(group) < len(rest) or (own and len(drafts) > 1 and len(layouts) < 4):
            continue
        lengths = [r.accept_length or 0.0 for r in group]
        control = any(
            r.row.role == "control" or (r.row.trained_taps and r.taps and r.row.trained_taps != r.taps) for r in group
        )
        far = any(
            a.taps and b.taps and not one_apart(a.taps, b.taps) and a.taps != b.taps for a in group for b in group
        )
        sure = "control" if control else "many" if len(layouts) >= 3 or far else ""
        return lengths, len(layouts), sure
    return None


def is_degenerate(reading: Reading) -> bool:
    """Far fewer distinct tokens than any text has: natural text has about ten times the square root of its length."""
    distinct, output = reading.row.distinct_tokens, reading.row.output_tokens
    if distinct is None or not output or output < MIN_JUDGED_TOKENS:
        return False
    return distinct < sqrt(output)


def degenerate(readings: Sequence[Reading]) -> OtherVerdict | None:
    """Text that loops over a few tokens: every draft looks good on it."""
    looping = [reading for reading in readings if is_degenerate(reading)]
    if looping:
        row = looping[0].row
        return OtherVerdict(
            kind="degenerate",
            verdict="yes",
            evidence=f"degenerate output in {looping[0].name}: {row.distinct_tokens} distinct tokens in"
            f" {row.output_tokens}; excluded. Measure on real prompts (MT-Bench, GSM8K, HumanEval, SPEED-Bench)",
        )
    random = [r for r in readings if _RANDOM.search(r.row.prompt_set or "")]
    if random:
        return OtherVerdict(
            kind="degenerate",
            verdict="undecided",
            evidence=f"{random[0].name} was measured on prompts called {random[0].row.prompt_set!r}: random tokens are"
            " no text, and acceptance on them says little. Measure on real prompts (MT-Bench, GSM8K, HumanEval)",
        )
    judged = [
        r for r in readings if r.row.distinct_tokens is not None and (r.row.output_tokens or 0) >= MIN_JUDGED_TOKENS
    ]
    if not judged:
        return None
    thin = [r for r in judged if (r.row.distinct_tokens or 0) < 2 * sqrt(r.row.output_tokens or 1)]
    worst = thin[0] if thin else judged[0]
    text = f"{worst.row.distinct_tokens} distinct tokens in {worst.row.output_tokens} ({worst.name})"
    return OtherVerdict(kind="degenerate", verdict="undecided" if thin else "no", evidence=text)


def metric(readings: Sequence[Reading]) -> OtherVerdict | None:
    """Numbers that contradict each other, or that are something else than the row's own accept length."""
    faulty = [reading for reading in readings if reading.faults]
    if faulty:
        first = faulty[0]
        used = (
            "" if first.accept_length is None else f"; used: {first.accept_length:.3f} from {first.accept_length_from}"
        )
        average = _running_average(readings, first)
        return OtherVerdict(
            kind="metric",
            verdict="yes",
            evidence=f"{first.name}: {'; '.join(first.faults[:3])}{used}" + (f"; {average}" if average else ""),
        )
    if (unlike := _repeats_that_differ(readings)) is not None:
        return unlike
    averages = [reading for reading in readings if RUNNING_AVERAGE in reading.row.notes]
    if averages:
        return OtherVerdict(
            kind="metric",
            verdict="undecided",
            evidence=f"{averages[0].name}: {RUNNING_AVERAGE}, not this run's; take it from per-request fields, or from"
            " the difference of sglang:generation_tokens_total over that of sglang:spec_verify_calls_total",
        )
    rates = [(r, note) for r in readings for note in r.row.notes if "rate is AL/n" in note]
    if rates:
        reading, note = rates[0]
        return OtherVerdict(
            kind="metric", verdict="yes", evidence=f"{reading.name}: {note}; the accept length was used, not the rate"
        )
    silent = [r for r in readings if r.accept_length is None and any("reason:" in note for note in r.row.notes)]
    if silent:
        return OtherVerdict(
            kind="metric",
            verdict="undecided",
            evidence=f"{silent[0].name}: {silent[0].row.notes[0]}; the per-request fields (spec_verify_ct in meta_info)"
            " have it",
        )
    return None


def _running_average(readings: Sequence[Reading], faulty: Reading) -> str:
    """Whether a stated accept length is the average over all rows so far instead of the row's own."""
    stated = faulty.row.accept_length
    rows = [r.row for r in readings[: readings.index(faulty) + 1]]
    if stated is None or any(not row.verify_steps for row in rows):
        return ""
    tokens = sum(
        row.completion_tokens
        if row.completion_tokens is not None
        else (row.accept_length or 0) * (row.verify_steps or 0)
        for row in rows
    )
    pooled = tokens / sum(row.verify_steps or 0 for row in rows)
    if len(rows) > 1 and abs(pooled - stated) <= 0.01 * stated:
        return f"{stated:.2f} is the server's running average over {len(rows)} workloads, not this one's"
    return ""


def _repeats_that_differ(readings: Sequence[Reading]) -> OtherVerdict | None:
    """Two rows that name the same in everything and differ in accept length, by something that neither names."""
    usable = [r for r in readings if r.accept_length and r.row.role not in ("baseline", "control") and r.layout_known]
    for first, second in combinations(usable, 2):
        if first.setup != second.setup or first.row.concurrency != second.row.concurrency:
            continue
        against = compare(first, second)
        if against is not None and against.different == "yes":
            return OtherVerdict(
                kind="metric",
                verdict="undecided",
                evidence=f"{first.name} and {second.name} name the same in everything and differ by {against}: noise,"
                " other prompts, or a condition that neither row names; repeat both",
            )
    return None
