from __future__ import annotations

from dataclasses import replace

from result_builders import config, record, summary

from results.other_loads import rounds_at_other_loads
from results.prediction import AcceptLengths
from results.step_samples import StepSample
from search_spaces.config import Triple, layout_label

TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
LENGTHS = AcceptLengths(values={(layout_label((0, 3, 7)), TRIPLE): 5.0})


CELLS = (
    summary(throughput=250.0),
    summary(throughput=640.0, concurrency=4),
    summary(throughput=900.0, concurrency=8, not_ranked=("the cache was warm",)),
)


def test_rounds_come_from_the_ranked_cells_at_other_loads() -> None:
    """640 tokens/s of four requests at 5 tokens a round: 32 rounds a second."""
    found = rounds_at_other_loads(record("t0001-a1", cells=CELLS), LENGTHS, 1)
    assert found == (StepSample(batch=4.0, triple=TRIPLE, tp_size=1, step_s=4 * 5.0 / 640),)
    assert [sample.batch for sample in rounds_at_other_loads(record("t0001-a1", cells=CELLS), LENGTHS, 4)] == [1.0]


def test_no_rounds_without_a_draft_a_trace_or_a_closed_loop() -> None:
    assert rounds_at_other_loads(record("baseline", config(None, None), cells=CELLS), LENGTHS, 1) == ()
    assert rounds_at_other_loads(record("t0002-a1", config((2, 4, 5)), cells=CELLS), LENGTHS, 1) == ()
    opened = (replace(CELLS[1], concurrency=0, request_rate=4.0),)
    assert rounds_at_other_loads(record("t0003-a1", cells=opened), LENGTHS, 1) == ()
