"""Corners as the rows that `explain` reasons on, so that both commands say the same about the same numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from results.corners import PARALLEL_FLAGS, MeasuredCorner
from results.external_row import ExternalRow, Role
from results.probed_feed import TrainedOn
from results.records import TrialRecord
from results.summary import CellSummary
from search_spaces.config import EngineConfig, layout_label
from search_spaces.model_facts import TargetFacts

SHARED_PREFIXES = 0.01
"""Cached tokens beyond this share, in a cell that counts, are prefixes that its prompts share."""


def config_words(config: EngineConfig) -> str:
    """`layout 0,3,7 at (5,1,6), tp 2`, with its flags."""
    flags = "".join(f", {name} {value}" for name, value in config.flags)
    if config.layout is None:
        return f"no speculation, tp {config.tp_size}{flags}"
    return f"layout {layout_label(config.layout)} at {config.triple}, tp {config.tp_size}{flags}"


def corner_row(
    corner: MeasuredCorner,
    target: TargetFacts,
    *,
    label: str,
    role: Role | None,
    trained: TrainedOn | None,
    all_flags: Collection[str] = (),
) -> ExternalRow | None:
    """One measured corner; None when it has no numbers. Only given taps count as known, inferred ones do not.

    `all_flags` are the flags of all corners: of those that this one has not it is known that they were not set.
    """
    cell, record = corner.cell, corner.records[0] if corner.records else None
    if cell is None or record is None or corner.config.triple is None:
        return None
    asked = record.setting
    triple = corner.config.triple
    numbers = (triple.num_steps, triple.eagle_topk, triple.num_draft_tokens)
    if role == "suspect" and asked is not None and None not in (asked.num_steps, asked.eagle_topk):
        numbers = (asked.num_steps or 0, asked.eagle_topk or 0, asked.num_draft_tokens or numbers[2])
    flags = dict.fromkeys(all_flags) | dict(corner.config.flags)
    launch = record.launch
    name, _, value = ("" if launch is None else launch.simulated or "").partition("=")
    simulated = {name: value} if name else {}
    return ExternalRow(
        label=label,
        role=role,
        target_class=target.architecture,
        num_layers=target.num_layers,
        hidden_size=target.hidden_size,
        layout_taps=corner.config.layout,
        trained_taps=trained.taps if trained is not None and trained.source == "given" else None,
        num_steps=numbers[0],
        eagle_topk=numbers[1],
        num_draft_tokens=numbers[2],
        tp_size=corner.config.tp_size,
        dp_size=_whole(flags.get("dp_size", flags.get("data_parallel_size"))),
        dp_attention=bool(flags.get("enable_dp_attention", False)) or None,
        sglang_version=None if launch is None else launch.engine_version,
        # tokens per step count the prefill's token and the cut at the end: beside the histogram a false contradiction
        accept_length=None if cell.histogram else corner.accept_length,
        histogram=cell.histogram,
        verify_steps=cell.verify_steps,
        output_throughput=None if cell.output_throughput is None else cell.output_throughput.value,
        concurrency=cell.concurrency,
        temperature=0.0,
        cached_token_share=_cached(cell),
        prompt_set=cell.workload_id,
        num_prompts=len(corner.pairs),
        flags={k: v for k, v in flags.items() if k not in PARALLEL_FLAGS} | simulated,
        source=record.trial_id,
    )


def baseline_rows(records: Sequence[TrialRecord], *, tp_size: int, workload_id: str) -> list[ExternalRow]:
    """Throughput without speculation at the suspect's TP size, one row a measured load."""
    return [
        ExternalRow(
            label=record.trial_id,
            role="baseline",
            tp_size=tp_size,
            output_throughput=cell.output_throughput.value,
            concurrency=cell.concurrency,
            temperature=0.0,
            prompt_set=cell.workload_id,
        )
        for record in records
        if record.ok and record.effective.is_baseline and record.effective.tp_size == tp_size
        for cell in record.cells
        if cell.workload_id == workload_id and cell.request_rate is None and cell.output_throughput is not None
    ]


def offline_row(accuracy: Sequence[float]) -> ExternalRow:
    """The draft's accuracy by position as its training reports it: the first rung of the ladder."""
    return ExternalRow(label="offline", role="control", acceptance_by_position=tuple(accuracy))


def _cached(cell: CellSummary) -> float | None:
    share = cell.cached_token_share
    return share if share is not None and share < SHARED_PREFIXES else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
