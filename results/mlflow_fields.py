"""What of a record goes into MLflow under which name. Pure; no MLflow imported.

Params: `layout`, `tp`, `req.*` (asked) and `eff.*` (run), apart, because a param can never be changed. Metrics: of the
first cell by plain names (`accept_length`, `p1`, ...), of every cell with its load (`throughput_c8`, `_r2.5`). A cell
that may not be ranked has its metrics under `unranked.`, so that sorting by a metric never puts it first. Times between
arrivals of several tokens at once are `itl_per_chunk_ms_p50`, with `tokens_per_chunk`: no column holds them beside
times between tokens.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.drift import baseline_drift, correction
from results.measured_settings import MeasuredSetting, measured_settings
from results.noise import noise_floor
from results.objective import Metric
from results.paired_intervals import PairedIntervals
from results.records import TrialRecord
from results.request_table import CellKey
from results.speedups import load_numbers, throughput_at
from results.summary import CellSummary
from search_spaces.config import EngineConfig, Setting, layout_label

MAX_PARAM_CHARACTERS = 500
MAX_TAG_CHARACTERS = 1000

_LATENCIES = ("ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "tpot_ms_p99", "e2e_ms_p50", "e2e_ms_p99")


@dataclass(frozen=True, kw_only=True)
class RunFields:
    """One run's params, metrics and tags; `status` is MLflow's."""

    name: str
    status: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


def load_suffix(load: CellKey) -> str:
    """`c8` for a closed loop of eight, `r2.5` for an open loop."""
    return f"c{load[0]}" if load[1] is None else f"r{load[1]:g}"


def metric_name(metric: Metric, load: CellKey) -> str:
    """The name of an objective among the metrics of a run, such as `ttft_ms_p99_r2.5`; what runs are sorted by."""
    return f"{'throughput' if metric == 'output_throughput' else metric}_{load_suffix(load)}"


def run_fields(record: TrialRecord, speedups: Mapping[CellKey, float]) -> RunFields:
    """Everything of a finished trial's run but its artifacts."""
    return RunFields(
        name=run_name(record.trial_id, record.effective),
        status="FINISHED" if record.ok else "KILLED" if _was_interrupted(record) else "FAILED",
        params=run_params(record.setting, record.effective, record),
        metrics={**_metrics(record), **speedup_metrics(speedups)},
        tags=_tags(record),
    )


def run_name(trial_id: str, effective: EngineConfig) -> str:
    """`t0012 0,3,7 (5,1,6) tp2`, or `b0001 baseline tp2`."""
    what = "baseline" if effective.layout is None else f"{layout_label(effective.layout)} {effective.triple}"
    return f"{trial_id} {what} tp{effective.tp_size}"


def start_tags(study: str, trial_id: str, role: str, retry_of: str | None) -> dict[str, str]:
    """Tags that a run has from its start: how it is found again."""
    tags = {"sweep.study": study, "trial_id": trial_id, "role": role, "status": "running"}
    return tags if retry_of is None else {**tags, "retry_of": retry_of}


def run_params(setting: Setting | None, effective: EngineConfig, record: TrialRecord | None = None) -> dict[str, str]:
    """Asked and effective values; values over 500 characters are replaced by their SHA-256 (the artifact has them)."""
    label = "none" if effective.layout is None else layout_label(effective.layout)
    params: dict[str, object] = {"layout": label, "tp": effective.tp_size, "eff.layout": label}
    triple = effective.triple
    for name in ("num_steps", "eagle_topk", "num_draft_tokens"):
        params[f"eff.{name}"] = "none" if triple is None else getattr(triple, name)
        if setting is not None:
            asked = getattr(setting, name)
            params[f"req.{name}"] = "unset" if asked is None else asked
    params["eff.tp_size"] = effective.tp_size
    params |= {f"eff.{name}": value for name, value in effective.flags}
    if setting is not None:
        params |= {"req.layout": setting.layout, "req.tp_size": setting.tp_size}
        params |= {f"req.{name}": value for name, value in setting.flags}
    if record is not None and record.launch is not None:
        arguments = json.dumps(record.launch.effective_args, sort_keys=True, default=str)
        params["eff.args_sha256"] = hashlib.sha256(arguments.encode()).hexdigest()
        params["sglang_version"] = record.launch.engine_version
        params["accelerator"] = record.launch.accelerator
    return {_key(name): _param(str(value)) for name, value in params.items()}


def speedup_metrics(speedups: Mapping[CellKey, float]) -> dict[str, float]:
    """`speedup_c8` per load, and `speedup` for the first."""
    metrics = {f"speedup_{load_suffix(load)}": value for load, value in speedups.items()}
    first = next(iter(speedups.values()), None)
    return metrics if first is None else {"speedup": first, **metrics}


def throughput_baselines(records: Sequence[TrialRecord]) -> tuple[MeasuredSetting, ...]:
    """The baselines among the records, all launches of one together."""
    return tuple(group for group in measured_settings(records) if group.effective.is_baseline)


def speedups_of(record: TrialRecord, baselines: Sequence[MeasuredSetting]) -> dict[CellKey, float]:
    """One trial's throughput over the baseline of its TP size, by load, both corrected for drift like the report's.

    Loads without a baseline are left out, and those where the trial was sent another workload than the baselines.
    """
    alone = MeasuredSetting(effective=record.effective, records=(record,))
    noise, intervals = noise_floor([]), PairedIntervals(None)
    workloads = {cell.workload_id for group in baselines for one in group.measured for cell in one.cells}
    loads = [cell.load for cell in record.cells if cell.workload_id in workloads]
    numbers = []
    for load in loads:
        corrected = correction(baseline_drift(baselines, throughput_at(load)))
        numbers.append(load_numbers(alone, load, baselines, noise=noise, corrected=corrected, intervals=intervals))
    return {one.load: one.speedup.value for one in numbers if one.speedup is not None}


def _key(name: str) -> str:
    """MLflow takes letters, digits and `_ - . space : /`, at most 250."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]


def _param(value: str) -> str:
    if len(value) <= MAX_PARAM_CHARACTERS:
        return value
    return "sha256:" + hashlib.sha256(value.encode()).hexdigest()


def _was_interrupted(record: TrialRecord) -> bool:
    return record.failure is not None and record.failure.kind == "interrupted"


def _tags(record: TrialRecord) -> dict[str, str]:
    tags = start_tags(record.study, record.trial_id, record.role, record.retry_of)
    tags |= {"status": "ok" if record.ok else "failed", "attempt": str(record.attempt)}
    tags["effective_id"] = record.effective.identity
    if record.number is not None:
        tags["optuna_trial"] = str(record.number)
    if record.failure is not None:
        tags |= {"failure.phase": record.failure.phase, "failure.kind": record.failure.kind}
        tags["failure.message"] = record.failure.message
    reasons = [reason for cell in record.cells for reason in cell.not_ranked]
    if reasons:
        tags["not_ranked"] = "; ".join(dict.fromkeys(reasons))
    stopped = [f"{cell.load_label}: {cell.stopped}" for cell in record.cells if cell.stopped is not None]
    if stopped:
        tags["stopped"] = "; ".join(stopped)
    if record.launch is not None:
        tags["stand_in_kernels"] = str(record.launch.stand_in_kernels).lower()
    return {name: value[:MAX_TAG_CHARACTERS] for name, value in tags.items()}


def _metrics(record: TrialRecord) -> dict[str, float]:
    metrics: dict[str, float] = {"wall_s": record.finished_at_unix_s - record.started_at_unix_s}
    if record.launch is not None:
        metrics["ready_s"] = record.launch.ready_s
    for number, cell in enumerate(record.cells):
        suffix = load_suffix(cell.load)
        prefix = "" if cell.ranked else "unranked."
        named = _cell_metrics(cell)
        metrics |= {f"{prefix}{name}_{suffix}": value for name, value in named.items()}
        if number == 0:
            metrics |= {f"{prefix}{name}": value for name, value in named.items()}
            positions = cell.acceptance_by_position or ()
            metrics |= {f"{prefix}p{at}": share for at, share in enumerate(positions, start=1)}
    return metrics


def _cell_metrics(cell: CellSummary) -> dict[str, float]:
    values: dict[str, float | None] = {name: getattr(cell, name) for name in _LATENCIES}
    itl = "itl_per_chunk_ms" if cell.itl_is_per_chunk else "itl_ms"
    values |= {f"{itl}_p50": cell.itl_ms_p50, f"{itl}_p99": cell.itl_ms_p99, "tokens_per_chunk": cell.tokens_per_chunk}
    values["steady_throughput"] = cell.steady_throughput
    values["cached_token_share"] = cell.cached_token_share
    for name, estimate in (("accept_length", cell.accept_length), ("throughput", cell.output_throughput)):
        if estimate is not None:
            values |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: value for name, value in values.items() if value is not None}
