"""A switched server counts proposed drafts by the numbers it was started with."""

from __future__ import annotations

from result_builders import cell, launch, row, spec_row

from results.cells import summarise_cell
from results.switched_counters import with_switched_counters
from search_spaces.config import Triple

RUNS = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
POOLS = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=64)


def test_counters_of_a_switched_server() -> None:
    right = spec_row("a", (11, 14, 11, 4, 0, 3), 6)
    seen = cell([spec_row("a", (11, 14, 11, 4, 0, 3), 64)])
    assert summarise_cell(seen, RUNS).accept_length is None
    switched = with_switched_counters(seen, launch(switch_s=0.3, pools=POOLS), RUNS)
    assert [r.proposed_drafts for r in switched.rows] == [right.proposed_drafts]
    summary = summarise_cell(switched, RUNS)
    assert summary.accept_length is not None
    assert summary.accept_length.value == 106 / 43
    assert summary.rows_rejected == 0


def test_other_cells_stay_as_they_are() -> None:
    seen = cell([spec_row("a", (11, 14, 11, 4, 0, 3), 64), row(prompt_id="b", error="gone", verify_steps=None)])
    assert with_switched_counters(seen, launch(), RUNS) is seen
    assert with_switched_counters(seen, launch(switch_s=0.3, pools=POOLS), None) is seen
    failed = with_switched_counters(seen, launch(switch_s=0.3, pools=POOLS), RUNS).rows[1]
    assert failed == seen.rows[1]
