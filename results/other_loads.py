"""What a trial's cells at other loads than the objective's tell about the time of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from results.observations import RequestRow
from results.records import TrialRecord
from results.request_table import CellKey
from results.step_samples import StepSample
from results.traced_points import Points, accept_length_of


def sent_accept_lengths(
    record: TrialRecord, rows: Mapping[CellKey, Sequence[RequestRow]], points: Points
) -> dict[CellKey, float]:
    """Accept lengths that traces say of the requests of each load of a trial; empty where no trace covers it."""
    config = record.effective
    if config.triple is None or config.layout is None:
        return {}
    point = points.get((config.layout, config.triple))
    return (
        {} if point is None else {cell.load: accept_length_of(rows.get(cell.load, ()), point) for cell in record.cells}
    )


def rounds_at_other_loads(
    record: TrialRecord, lengths: Mapping[CellKey, float], concurrency: int
) -> tuple[StepSample, ...]:
    """Rounds of a trial's ranked closed-loop cells at other concurrencies than this one, by the accept length at each.

    A round gives a request that many tokens, so it takes concurrency x accept length / throughput.
    """
    triple = record.effective.triple
    if triple is None:
        return ()
    return tuple(
        StepSample(
            batch=float(cell.concurrency),
            triple=triple,
            tp_size=record.effective.tp_size,
            step_s=cell.concurrency * lengths[cell.load] / cell.output_throughput.value,
        )
        for cell in record.cells
        if cell.ranked and cell.request_rate is None and cell.concurrency != concurrency and cell.load in lengths
        if cell.output_throughput is not None and cell.output_throughput.value > 0
    )
