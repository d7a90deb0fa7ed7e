from __future__ import annotations

from dataclasses import replace

from result_builders import config, record, row, summary

from results.other_loads import rounds_at_other_loads, sent_accept_lengths
from results.step_samples import StepSample
from results.summary import Estimate
from results.surface import SurfacePoint
from search_spaces.config import Triple

TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
POINT = SurfacePoint(
    layout=(0, 3, 7),
    tp_size=1,
    triple=TRIPLE,
    accept_length=Estimate(value=4.0, low=3.0, high=5.0, count=2),
    acceptance_by_position=(),
    histogram=(),
    rounds=50,
    method="replay",
    prompt_ids=("p0", "p1"),
    rounds_by_prompt=(20, 30),
    tokens_by_prompt=(100, 100),
)
LENGTHS = {(1, None): 4.0, (4, None): 5.0, (8, None): 4.0}

CELLS = (
    summary(throughput=250.0),
    summary(throughput=640.0, concurrency=4),
    summary(throughput=900.0, concurrency=8, not_ranked=("the cache was warm",)),
)


def test_each_load_has_the_accept_length_of_the_requests_it_sent() -> None:
    """At concurrency 4 the cell stopped after the first prompt, of which a verify step makes 5 tokens."""
    one, two = (row(prompt_id=prompt, completion_tokens=100) for prompt in ("p0", "p1"))
    rows = {(1, None): [one, two], (4, None): [one]}
    points = {((0, 3, 7), TRIPLE): POINT}
    assert sent_accept_lengths(record("t0001-a1", cells=CELLS), rows, points) == LENGTHS
    assert sent_accept_lengths(record("t0001-a1", cells=CELLS), rows, {}) == {}
    assert sent_accept_lengths(record("baseline", config(None, None), cells=CELLS), rows, points) == {}


def test_rounds_come_from_the_ranked_cells_at_other_loads() -> None:
    """640 tokens/s of four requests at 5 tokens a round: 32 rounds a second."""
    found = rounds_at_other_loads(record("t0001-a1", cells=CELLS), LENGTHS, 1)
    assert found == (StepSample(batch=4.0, triple=TRIPLE, tp_size=1, step_s=4 * 5.0 / 640),)
    assert [sample.batch for sample in rounds_at_other_loads(record("t0001-a1", cells=CELLS), LENGTHS, 4)] == [1.0]


def test_no_rounds_without_a_draft_a_trace_or_a_closed_loop() -> None:
    assert rounds_at_other_loads(record("baseline", config(None, None), cells=CELLS), LENGTHS, 1) == ()
    assert rounds_at_other_loads(record("t0002-a1", cells=CELLS), {}, 1) == ()
    opened = (replace(CELLS[1], concurrency=0, request_rate=4.0),)
    assert rounds_at_other_loads(record("t0003-a1", cells=opened), {**LENGTHS, (0, 4.0): 4.0}, 1) == ()
