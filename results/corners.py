"""The corners of an isolation as they were measured: which configuration each is, and its prompts' counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from results.attribution import GROUPS, Corner, Group, corners
from results.cell_acceptance import acceptance_pairs
from results.observations import RequestRow
from results.records import TrialRecord
from results.request_table import CellKey
from results.stats import Pair, relative_spread
from results.summary import CellSummary
from search_spaces.config import EngineConfig

PARALLEL_FLAGS: frozenset[str] = frozenset(
    {
        "attn_cp_size",
        "data_parallel_size",
        "dp_size",
        "enable_dp_attention",
        "enable_dp_lm_head",
        "ep_size",
        "expert_parallel_size",
        "moe_dp_size",
        "nnodes",
        "pipeline_parallel_size",
        "pp_size",
    }
)
"""Flags that belong to parallelism; every other flag is configuration."""


def parts_of(config: EngineConfig) -> dict[Group, object]:
    """A configuration's value of each group: triple and flags, taps, sizes of parallelism."""
    plain = tuple(flag for flag in config.flags if flag[0] not in PARALLEL_FLAGS)
    parallel = tuple(flag for flag in config.flags if flag[0] in PARALLEL_FLAGS)
    return {
        "config": (config.triple, plain),
        "layout": config.layout,
        "parallelism": (config.tp_size, parallel),
    }


def differing_groups(first: EngineConfig, second: EngineConfig) -> tuple[Group, ...]:
    """The groups in which two configurations differ."""
    one, other = parts_of(first), parts_of(second)
    return tuple(group for group in GROUPS if one[group] != other[group])


def corner_config(suspect: EngineConfig, reference: EngineConfig, corner: Corner) -> EngineConfig:
    """The suspect with the groups of `corner` taken from the reference. Nothing says that it is legal."""
    config = reference if "config" in corner else suspect
    layout = reference if "layout" in corner else suspect
    parallel = reference if "parallelism" in corner else suspect
    flags = [flag for flag in config.flags if flag[0] not in PARALLEL_FLAGS]
    flags += [flag for flag in parallel.flags if flag[0] in PARALLEL_FLAGS]
    return EngineConfig(
        layout=layout.layout, triple=config.triple, tp_size=parallel.tp_size, flags=tuple(sorted(flags))
    )


def corner_configs(suspect: EngineConfig, reference: EngineConfig) -> dict[Corner, EngineConfig]:
    """The distinct corners: 2 to the number of groups that differ."""
    groups = differing_groups(suspect, reference)
    return {corner: corner_config(suspect, reference, corner) for corner in corners(groups)}


@dataclass(frozen=True, kw_only=True)
class MeasuredCorner:
    """One corner with every trial that measured it on the workload.

    `pairs` holds (tokens, verify steps) by prompt, summed over the trials; empty when none measured it, and `problem`
    then says why. `cell` is the first trial's, `rows` are its requests.
    """

    config: EngineConfig
    records: tuple[TrialRecord, ...]
    pairs: Mapping[str, Pair] = field(repr=False)
    cell: CellSummary | None
    rows: tuple[RequestRow, ...] = field(default=(), repr=False)
    problem: str = ""

    @property
    def accept_length(self) -> float | None:
        tokens, steps = (sum(pair[i] for pair in self.pairs.values()) for i in (0, 1))
        return tokens / steps if steps else None


RowsOf = Callable[[str], Mapping[CellKey, Sequence[RequestRow]]]


def measured_corner(
    config: EngineConfig,
    records: Iterable[TrialRecord],
    rows_of: RowsOf,
    *,
    workload_id: str,
    concurrency: int,
    problem: str = "",
) -> MeasuredCorner:
    """What the records say about a configuration on one workload at one concurrency.

    Cells that are not ranked (warm cache, degenerate text, failed requests) do not count. `problem` is what is known
    already, such as a rule that makes the corner illegal.
    """
    own = [record for record in records if record.effective == config]
    used, objections = [], [problem] if problem else []
    for record in own:
        if record.failure is not None:
            objections.append(f"{record.trial_id} failed: {record.failure.message}")
            continue
        for cell in record.cells:
            if (cell.workload_id, cell.concurrency, cell.request_rate) != (workload_id, concurrency, None):
                continue
            if cell.not_ranked:
                objections.append(f"{record.trial_id} does not count: {cell.not_ranked[0]}")
            else:
                used.append((record, cell))
    tables = [tuple(rows_of(record.trial_id).get((concurrency, None), ())) for record, _ in used]
    pairs: dict[str, Pair] = {}
    for rows in tables:
        for prompt, (tokens, steps) in acceptance_pairs(rows, config.triple).items():
            before = pairs.get(prompt, (0.0, 0.0))
            pairs[prompt] = (before[0] + tokens, before[1] + steps)
    return MeasuredCorner(
        config=config,
        records=tuple(record for record, _ in used),
        pairs=pairs,
        cell=used[0][1] if used else None,
        rows=tables[0] if tables else (),
        problem="" if pairs else (objections[-1] if objections else "not measured yet"),
    )


def repeat_noise(measured: Iterable[MeasuredCorner], *, workload_id: str, concurrency: int) -> float:
    """By how much, relatively, repeated launches of one corner differ in accept length; 0 without repeats."""
    spreads = [0.0]
    for corner in measured:
        cells = [
            cell
            for record in corner.records
            for cell in record.cells
            if (cell.workload_id, cell.concurrency) == (workload_id, concurrency)
        ]
        lengths = [cell.accept_length.value for cell in cells if cell.accept_length is not None]
        if len(lengths) > 1:
            spreads.append(relative_spread(lengths))
    return max(spreads)
