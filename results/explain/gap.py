"""The gap that verdicts explain: suspect against reference, split where it can be; the ladder from offline numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Any

from results.attribution import Group, shapley_values, shapley_weights
from results.explain.cases import Case
from results.explain.comparison import standard_error
from results.explain.reading import Reading


def shares(case: Case) -> dict[Group, tuple[float, tuple[float, float] | None]]:
    """Each differing group's Shapley share of the gap, with an interval where every corner has counts.

    Empty when there is no reference, a corner is missing, or the two may differ in a group more.
    """
    if case.reference is None or not case.differing or case.missing or case.unsure:
        return {}
    values = {corner: reading.accept_length or 0.0 for corner, reading in case.corners.items()}
    errors = {corner: standard_error(reading) for corner, reading in case.corners.items()}
    split = shapley_values(values, case.differing)
    result: dict[Group, tuple[float, tuple[float, float] | None]] = {}
    for group, share in split.items():
        weights = shapley_weights(case.differing, group)
        known = [(weight, error) for corner, weight in weights.items() if (error := errors[corner]) is not None]
        interval = None
        if len(known) == len(weights):
            half = 1.96 * sqrt(sum((weight * error) ** 2 for weight, error in known))
            interval = (share - half, share + half)
        result[group] = (share, interval)
    return result


def is_offline(reading: Reading) -> bool:
    """Per-position accuracy that no server measured: a control that names positions, and neither tp nor a version."""
    row = reading.row
    served = row.tp_size is not None or row.sglang_version is not None or row.output_throughput is not None
    named = "offline" in (row.label or "").lower()
    return bool(row.acceptance_by_position) and not served and (named or row.role == "control")


def describe(case: Case, offline: Sequence[Reading], baselines: Sequence[Reading]) -> dict[str, Any] | None:
    """The `gap` of the JSON output; None without an accept length, short without a reference."""
    suspect, reference = case.suspect, case.reference
    if suspect is None or suspect.accept_length is None:
        return None
    content: dict[str, Any] = {"metric": "accept_length", "suspect": _end(suspect)}
    if suspect.triple is not None:
        content["suspect"]["ceiling"] = suspect.triple.ceiling
    if reference is not None:
        value = (reference.accept_length or 0.0) - (suspect.accept_length or 0.0)
        content |= {
            "reference": _end(reference),
            "value": round(value, 6),
            "relative": round(value / (reference.accept_length or 1.0), 6),
            "differing": list(case.differing),
            "unsure": list(case.unsure),
            "missing_corners": [sorted(corner) for corner in case.missing],
        }
    if rungs := ladder(case, offline):
        content["ladder"] = rungs
    if throughput := _throughput(suspect, baselines):
        content["throughput"] = throughput
    return content


def _end(reading: Reading) -> dict[str, Any]:
    return {
        "label": reading.name,
        "accept_length": round(reading.accept_length or 0.0, 6),
        "p1": None if reading.p1 is None else round(reading.p1.estimate, 6),
    }


def ladder(case: Case, offline: Sequence[Reading]) -> list[dict[str, Any]]:
    """Rungs from offline accuracy over tp 1 to tp N, each with what is lost to the one before."""
    suspect = case.suspect
    if suspect is None or not offline or suspect.triple is None:
        return []
    accuracy = offline[0].row.acceptance_by_position or ()
    steps = suspect.triple.num_steps
    if len(accuracy) < steps:
        return []
    rungs = [{"rung": "offline", "label": offline[0].name, "accept_length": 1 + sum(accuracy[:steps])}]
    for reading in sorted(case.series("parallelism"), key=lambda r: r.tp_size):
        rungs.append(
            {"rung": f"tp {reading.tp_size}", "label": reading.name, "accept_length": reading.accept_length or 0.0}
        )
    before: float | None = None
    for rung in rungs:
        length = float(str(rung["accept_length"]))
        rung["lost"] = 0.0 if before is None else round(before - length, 6)
        rung["accept_length"] = round(length, 6)
        before = length
    return list(rungs)


def _throughput(suspect: Reading, baselines: Sequence[Reading]) -> dict[str, Any] | None:
    row = suspect.row
    baseline = row.baseline_throughput or next(
        (r.row.output_throughput for r in baselines if r.row.output_throughput and _same_load(r, suspect)), None
    )
    if not row.output_throughput or not baseline or not isfinite(row.output_throughput / baseline):
        return None
    return {
        "suspect": row.output_throughput,
        "baseline": baseline,
        "speedup": round(row.output_throughput / baseline, 6),
    }


def _same_load(baseline: Reading, suspect: Reading) -> bool:
    return baseline.row.concurrency in (None, suspect.row.concurrency)
