"""What a trial's cells at other loads than the objective's tell about the time of a round."""

from __future__ import annotations

from results.prediction import AcceptLengths, Measured, PredictedSetting, round_of
from results.records import TrialRecord
from results.step_samples import StepSample
from search_spaces.config import layout_label


def rounds_at_other_loads(record: TrialRecord, lengths: AcceptLengths, concurrency: int) -> tuple[StepSample, ...]:
    """Rounds of a trial's ranked closed-loop cells at other concurrencies than this one; none without a draft."""
    config = record.effective
    if config.triple is None or config.layout is None:
        return ()
    setting = PredictedSetting(layout=layout_label(config.layout), triple=config.triple, tp_size=config.tp_size)
    found = (
        round_of(Measured(setting=setting, throughput=cell.output_throughput.value), lengths, float(cell.concurrency))
        for cell in record.cells
        if cell.ranked and cell.request_rate is None and cell.concurrency != concurrency and cell.output_throughput
    )
    return tuple(sample for sample in found if sample is not None)
