"""Which traced point counts: smallest TP size, most prompts, no trace that ended early, whatever order they come in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from results.prediction import AcceptLengths, PredictedSetting
from results.summary import Estimate
from results.surface import Method, SurfacePoint
from results.traced_points import once_each, points_that_count
from search_spaces.config import Triple

CHAIN = Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4)
LAYOUT = (0, 3, 7)


def point(
    value: float,
    *,
    tp_size: int = 1,
    prompts: int = 32,
    layout: tuple[int, ...] = LAYOUT,
    method: Method = "replay",
) -> SurfacePoint:
    return SurfacePoint(
        layout=layout,
        tp_size=tp_size,
        triple=CHAIN,
        accept_length=Estimate(value=value, low=1.0, high=4.0, count=prompts),
        acceptance_by_position=(),
        histogram=(),
        rounds=100,
        method=method,
    )


@given(st.permutations([point(3.0), point(1.2, tp_size=8, prompts=16), point(2.0, prompts=20), point(1.9, tp_size=2)]))
def test_the_smallest_tp_size_counts_then_the_most_prompts(points: list[SurfacePoint]) -> None:
    """At tp 8 the draft is broken: what it accepts there must not lead a search at tp 1."""
    counted = points_that_count(points)
    assert counted == {(LAYOUT, CHAIN): point(3.0)}
    asked = PredictedSetting(layout="0,3,7", triple=CHAIN, tp_size=1)
    assert AcceptLengths.of(counted).of_setting(asked) == 3.0


def test_a_trace_that_ended_early_does_not_count_at_any_tp_size() -> None:
    few, whole = point(2.5, prompts=15), point(2.9, tp_size=2)
    assert points_that_count([few, whole]) == {(LAYOUT, CHAIN): whole}
    assert points_that_count([few, point(2.4, layout=(2, 4, 5), prompts=31)]).keys() == {((2, 4, 5), CHAIN)}


def test_estimates_never_count() -> None:
    assert points_that_count([point(2.5, method="survival")]) == {}


def test_each_tp_size_keeps_its_point_of_the_most_prompts_and_the_first_of_equals() -> None:
    kept = once_each([point(1.0, prompts=4), point(2.0), point(3.0), point(4.0, tp_size=2)])
    assert [one.accept_length.value for one in kept] == [2.0, 4.0]
