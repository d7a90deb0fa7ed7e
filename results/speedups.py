"""Output throughput against no speculation: which baseline is the right one, and when the comparison is unfair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from results.measured_settings import MeasuredSetting, cells_at, launches_at, mean_estimate
from results.noise import NoiseFloor
from results.paired_intervals import PairedIntervals
from results.request_table import CellKey
from results.summary import Estimate


@dataclass(frozen=True, kw_only=True)
class LoadNumbers:
    """One setting at one load. `speedup` is over the baseline of the same TP size and flags, `over_best_baseline` over
    the fastest of all; both None without such a baseline. `unfair` says in sentences why the two are not alike."""

    load: CellKey
    label: str
    throughput: Estimate | None
    speedup: Estimate | None
    over_best_baseline: float | None
    unfair: tuple[str, ...]


def baseline_for(setting: MeasuredSetting, baselines: Sequence[MeasuredSetting]) -> MeasuredSetting | None:
    """The baseline of the same TP size, with the same flags if there is one, else with the fewest that differ."""
    same_tp = [one for one in baselines if one.effective.tp_size == setting.effective.tp_size]
    flags = set(setting.effective.flags)
    return min(same_tp, key=lambda one: len(flags ^ set(one.effective.flags)), default=None)


def load_numbers(
    setting: MeasuredSetting,
    load: CellKey,
    baselines: Sequence[MeasuredSetting],
    *,
    noise: NoiseFloor,
    intervals: PairedIntervals,
) -> LoadNumbers:
    """Throughput and speedups of a setting at one load, from its ranked cells."""
    label = str(load[0]) if load[1] is None else f"{load[1]:g}/s"
    throughput = _throughput(setting, load)
    baseline = baseline_for(setting, baselines)
    speedup: Estimate | None = None
    unfair: tuple[str, ...] = ()
    if throughput is not None and baseline is not None:
        speedup = _speedup(baseline, setting, load, noise, intervals)
        unfair = unfair_reasons(setting, baseline, load) if speedup is not None else ()
    best = max((e.value for one in baselines if (e := _throughput(one, load)) is not None), default=None)
    return LoadNumbers(
        load=load,
        label=label,
        throughput=throughput,
        speedup=speedup,
        over_best_baseline=throughput.value / best if throughput is not None and best else None,
        unfair=unfair,
    )


def _throughput(setting: MeasuredSetting, load: CellKey) -> Estimate | None:
    return mean_estimate([c.output_throughput for c in cells_at(setting, load) if c.output_throughput is not None])


def _speedup(
    baseline: MeasuredSetting,
    setting: MeasuredSetting,
    load: CellKey,
    noise: NoiseFloor,
    intervals: PairedIntervals,
) -> Estimate | None:
    """The ratio with its interval over prompts and launches."""
    below, above = _throughput(baseline, load), _throughput(setting, load)
    if below is None or above is None or below.value <= 0 or above.value <= 0:
        return None
    ours, theirs = launches_at(setting, load), launches_at(baseline, load)
    prompts = intervals.log_half_width(
        "output_throughput", load, ([it.trial_id for it, _ in theirs], below), ([it.trial_id for it, _ in ours], above)
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


def unfair_reasons(setting: MeasuredSetting, baseline: MeasuredSetting, load: CellKey) -> tuple[str, ...]:
    """Why a speedup at that load does not compare like with like, in sentences; empty when it does."""
    reasons = []
    cap, other = _cap(setting), _cap(baseline)
    if cap != other and any(limit is not None and limit < load[0] for limit in (cap, other)):
        reasons.append(
            f"at most {_words(cap)} requests at once with speculation, {_words(other)} without it "
            f"(max_running_requests), at concurrency {load[0]}: set the same limit for both"
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
        cap = record.launch.effective_args.get("max_running_requests") if record.launch is not None else None
        if isinstance(cap, int) and not isinstance(cap, bool):
            return cap
    return None


def _words(cap: int | None) -> str:
    return "any number of" if cap is None else str(cap)
