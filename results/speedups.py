"""Output throughput against no speculation: which baseline is the right one, and when the comparison is unfair."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from results.loads import load_label, load_words
from results.measured_settings import LaunchValue, MeasuredSetting, RowsOf, cells_at, launch_values, mean_estimate
from results.noise import NoiseFloor
from results.objective import Objective
from results.output_identity import OutputIdentity, compare_outputs
from results.paired_intervals import PairedIntervals
from results.request_table import CellKey
from results.server_limits import request_limit
from results.summary import Estimate


@dataclass(frozen=True, kw_only=True)
class LoadNumbers:
    """One setting at one load. `speedup` is over the baseline of the same TP size and flags, `over_best_baseline` over
    the fastest of all; both None without such a baseline. `unfair` says in sentences why the two are not alike.
    `outputs` compares the first launch's texts with the baseline's; None where they need not agree or are not known."""

    load: CellKey
    label: str
    throughput: Estimate | None
    speedup: Estimate | None
    over_best_baseline: float | None
    unfair: tuple[str, ...]
    outputs: OutputIdentity | None = None


def baseline_for(setting: MeasuredSetting, baselines: Sequence[MeasuredSetting]) -> MeasuredSetting | None:
    """The baseline of the same TP size, with the same flags if there is one, else with the fewest that differ."""
    same_tp = [one for one in baselines if one.effective.tp_size == setting.effective.tp_size]
    flags = set(setting.effective.flags)
    return min(same_tp, key=lambda one: len(flags ^ set(one.effective.flags)), default=None)


def throughput_at(load: CellKey) -> Objective:
    """What a speedup compares, whatever the study's own objective is."""
    concurrency, request_rate = load
    return Objective(concurrency=concurrency if request_rate is None else None, request_rate=request_rate)


def load_numbers(
    setting: MeasuredSetting,
    load: CellKey,
    baselines: Sequence[MeasuredSetting],
    *,
    noise: NoiseFloor,
    corrected: Callable[[float, float], float],
    intervals: PairedIntervals,
    outputs: OutputIdentity | None = None,
) -> LoadNumbers:
    """Throughput and speedups of a setting at one load, from its ranked cells.

    `noise` and `corrected` (for drift) are those of `throughput_at(load)`.
    """

    def launches_of(one: MeasuredSetting) -> tuple[LaunchValue, ...]:
        return launch_values(one, throughput_at(load), corrected)

    launches = launches_of(setting)
    throughput = _mean(launches)
    baseline = baseline_for(setting, baselines)
    speedup: Estimate | None = None
    unfair: tuple[str, ...] = ()
    if baseline is not None:
        speedup = _speedup(launches_of(baseline), launches, load, noise, intervals)
        unfair = unfair_reasons(setting, baseline, load) if speedup is not None else ()
    best = max((e.value for one in baselines if (e := _mean(launches_of(one))) is not None), default=None)
    return LoadNumbers(
        load=load,
        label=load_label(load),
        throughput=throughput,
        speedup=speedup,
        over_best_baseline=throughput.value / best if throughput is not None and best else None,
        unfair=unfair,
        outputs=outputs,
    )


def _mean(launches: Sequence[LaunchValue]) -> Estimate | None:
    return mean_estimate([one.estimate for one in launches])


def _speedup(
    theirs: Sequence[LaunchValue],
    ours: Sequence[LaunchValue],
    load: CellKey,
    noise: NoiseFloor,
    intervals: PairedIntervals,
) -> Estimate | None:
    """The ratio with its interval over prompts and launches."""
    below, above = _mean(theirs), _mean(ours)
    if below is None or above is None:
        return None
    prompts = intervals.log_half_width(
        "output_throughput",
        load,
        ([one.record.trial_id for one in theirs], below),
        ([one.record.trial_id for one in ours], above),
    )
    launches = noise.half_width(len(ours), len(theirs))
    half_width = math.hypot(prompts, launches)
    ratio = above.value / below.value
    if not math.isfinite(half_width):
        return None
    return Estimate(
        value=ratio,
        low=ratio * math.exp(-half_width),
        high=ratio * math.exp(half_width),
        count=min(below.count, above.count),
    )


def outputs_by_load(
    setting: MeasuredSetting, baselines: Sequence[MeasuredSetting], rows_of: RowsOf
) -> dict[CellKey, OutputIdentity]:
    """The first launch's outputs against those of the first launch of its baseline, at every load both measured.

    Empty for a baseline, and without one to compare with. At one load, because what runs beside a request may change
    the rounding of its logits.
    """
    baseline = baseline_for(setting, [one for one in baselines if one.measured])
    if setting.effective.is_baseline or not setting.measured or baseline is None:
        return {}
    ours, theirs = rows_of(setting.measured[0].trial_id), rows_of(baseline.measured[0].trial_id)
    found = {load: compare_outputs(theirs[load], rows) for load, rows in ours.items() if load in theirs}
    return {load: identity for load, identity in found.items() if identity.shared}


def unfair_reasons(setting: MeasuredSetting, baseline: MeasuredSetting, load: CellKey) -> tuple[str, ...]:
    """Why a speedup at that load does not compare like with like, in sentences; empty when it does."""
    reasons = []
    cap, other = _cap(setting), _cap(baseline)
    cells = [cell for one in (setting, baseline) for cell in cells_at(one, load)]
    in_flight = load[0] or max((cell.most_in_flight or 0 for cell in cells), default=0)
    if cap != other and any(limit is not None and limit < in_flight for limit in (cap, other)):
        at = load_words(load) + ("" if load[1] is None else f" ({in_flight} in flight)")
        reasons.append(
            f"at most {_words(cap)} requests at once with speculation, {_words(other)} without it "
            f"(max_running_requests), at {at}: set the same limit for both"
        )
    ours = [cell for cell in cells_at(setting, load) if cell.cached_token_share is not None]
    theirs = [cell for cell in cells_at(baseline, load) if cell.cached_token_share is not None]
    if ours and theirs:
        share, base = (sum(c.cached_token_share or 0 for c in cells) / len(cells) for cells in (ours, theirs))
        if abs(share - base) >= 0.05:
            reasons.append(f"{share:.0%} of the prompt tokens came from the cache, {base:.0%} in the baseline")
    if {c.workload_id for c in cells_at(setting, load)}.isdisjoint(c.workload_id for c in cells_at(baseline, load)):
        reasons.append("the baseline was measured on another workload")
    return tuple(reasons)


def _cap(setting: MeasuredSetting) -> int | None:
    for record in setting.measured:
        cap = request_limit(record.launch.effective_args) if record.launch is not None else None
        if cap is not None:
            return cap
    return None


def _words(cap: int | None) -> str:
    return "any number of" if cap is None else str(cap)
