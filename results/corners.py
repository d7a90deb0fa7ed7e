"""The corners of an isolation as they were measured: which configuration each is, and its prompts' counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from results.attribution import GROUPS, Corner, Group, corners
from results.cell_acceptance import acceptance_pairs
from results.measured_settings import RowsOf
from results.observations import RequestRow
from results.records import TrialRecord
from results.stats.ratios import Pair
from results.stats.spreads import relative_spread
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

    `repeats` holds (tokens, verify steps) by prompt for each of the trials, `pairs` their means over the trials that
    measured a prompt: a prompt weighs the same however often it was measured. `pairs` is empty when none measured the
    corner, and `problem` then says why. `cell` is the first trial's, `rows` are its requests. `stopped` is why the
    trials ended before their last prompt; it is empty when one did not, and those that did are then left out.
    """

    config: EngineConfig
    records: tuple[TrialRecord, ...]
    pairs: Mapping[str, Pair] = field(repr=False)
    cell: CellSummary | None
    rows: tuple[RequestRow, ...] = field(default=(), repr=False)
    problem: str = ""
    repeats: tuple[Mapping[str, Pair], ...] = field(default=(), repr=False)
    stopped: str = ""

    @property
    def accept_length(self) -> float | None:
        tokens, steps = (sum(pair[i] for pair in self.pairs.values()) for i in (0, 1))
        return tokens / steps if steps else None


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
            if (cell.workload_id, cell.load) != (workload_id, (concurrency, None)):
                continue
            if cell.not_ranked:
                objections.append(f"{record.trial_id} does not count: {cell.not_ranked[0]}")
            else:
                used.append((record, cell))
    whole = [(record, cell) for record, cell in used if cell.stopped is None]
    counted = whole or used
    tables = [tuple(rows_of(record.trial_id).get((concurrency, None), ())) for record, _ in counted]
    repeats = tuple(acceptance_pairs(rows, config.triple) for rows in tables)
    pairs = _means(repeats)
    return MeasuredCorner(
        config=config,
        records=tuple(record for record, _ in counted),
        pairs=pairs,
        cell=counted[0][1] if counted else None,
        rows=tables[0] if tables else (),
        problem="" if pairs else (objections[-1] if objections else "not measured yet"),
        repeats=repeats,
        stopped="" if whole or not used else used[0][1].stopped or "",
    )


def repeat_noise(measured: Iterable[MeasuredCorner]) -> float:
    """By how much, relatively, repeated measurements of one corner differ in accept length, over the prompts that all
    of them measured; 0 without repeats."""
    spreads = [0.0]
    for corner in measured:
        shared = set.intersection(*map(set, corner.repeats)) if len(corner.repeats) > 1 else set()
        if shared:
            sums = [[sum(pairs[prompt][i] for prompt in shared) for i in (0, 1)] for pairs in corner.repeats]
            spreads.append(relative_spread([tokens / steps for tokens, steps in sums]))
    return max(spreads)


def _means(repeats: Sequence[Mapping[str, Pair]]) -> dict[str, Pair]:
    """Every prompt's mean over the trials that measured it."""
    found: dict[str, list[Pair]] = {}
    for pairs in repeats:
        for prompt, pair in pairs.items():
            found.setdefault(prompt, []).append(pair)
    return {
        prompt: (sum(tokens for tokens, _ in pairs) / len(pairs), sum(steps for _, steps in pairs) / len(pairs))
        for prompt, pairs in found.items()
    }
