"""Which traced point counts: smallest TP size, most prompts, no trace that ended early, whatever order they come in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import row

from results.observations import RequestRow
from results.prediction import AcceptLengths, PredictedSetting
from results.summary import Estimate
from results.surface import Method, SurfacePoint
from results.traced_points import accept_length_of, once_each, points_that_count
from search_spaces.config import Flags, Triple

CHAIN = Triple(num_steps=3, eagle_topk=1, num_draft_tokens=4)
LAYOUT = (0, 3, 7)


def point(
    value: float,
    *,
    tp_size: int = 1,
    prompts: int = 32,
    layout: tuple[int, ...] = LAYOUT,
    method: Method = "replay",
    flags: Flags = (),
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
        flags=flags,
    )


@given(st.permutations([point(3.0), point(1.2, tp_size=8, prompts=16), point(2.0, prompts=20), point(1.9, tp_size=2)]))
def test_the_smallest_tp_size_counts_then_the_most_prompts(points: list[SurfacePoint]) -> None:
    """At tp 8 the draft is broken: what it accepts there must not lead a search at tp 1."""
    counted = points_that_count(points)
    assert counted == {(LAYOUT, CHAIN): point(3.0)}
    asked = PredictedSetting(layout="0,3,7", triple=CHAIN, tp_size=1)
    assert AcceptLengths.of(counted, {}).of_setting(asked) == 3.0


def test_a_trace_that_ended_early_does_not_count_at_any_tp_size() -> None:
    few, whole = point(2.5, prompts=15), point(2.9, tp_size=2)
    assert points_that_count([few, whole]) == {(LAYOUT, CHAIN): whole}
    assert points_that_count([few, point(2.4, layout=(2, 4, 5), prompts=31)]).keys() == {((2, 4, 5), CHAIN)}


@given(st.permutations([0, 1, 2, 3]))
def test_points_of_other_flags_count_only_where_there_is_nothing_else(order: list[int]) -> None:
    """An isolation traced tp 1 with flags that no server of the space has; the space begins at tp 2, with `auto`."""
    auto, other, foreign = ((("kv_cache_dtype", value),) for value in ("auto", "fp8_e4m3", "fp8_e5m2"))
    points = [
        point(2.0, flags=foreign),
        point(3.0, tp_size=2, flags=auto),
        point(2.8, tp_size=2, flags=other),
        point(2.1, layout=(2, 4, 5), flags=foreign),
    ]
    counted = points_that_count([points[i] for i in order], [auto, other])
    assert counted == {(LAYOUT, CHAIN): points[1], ((2, 4, 5), CHAIN): points[3]}
    assert len(once_each(points)) == 4


def test_estimates_never_count() -> None:
    assert points_that_count([point(2.5, method="survival")]) == {}


def test_each_tp_size_keeps_its_point_of_the_most_prompts_and_the_first_of_equals() -> None:
    kept = once_each([point(1.0, prompts=4), point(2.0), point(3.0), point(4.0, tp_size=2)])
    assert [one.accept_length.value for one in kept] == [2.0, 4.0]


TRACED = replace(
    point(40 / 16, prompts=4),
    prompt_ids=("a", "b", "c", "d"),
    rounds_by_prompt=(2, 4, 5, 5),
    tokens_by_prompt=(10, 10, 10, 10),
)


def test_the_accept_length_of_the_prompts_that_were_sent() -> None:
    def sent(prompt: str, tokens: int = 10, steps: int = 9, error: str | None = None) -> RequestRow:
        return row(prompt_id=prompt, completion_tokens=tokens, verify_steps=steps, error=error)

    every = [sent(prompt) for prompt in "abcd"]
    assert accept_length_of(every, TRACED) == pytest.approx(TRACED.accept_length.value)
    assert accept_length_of(every[:2], TRACED) == pytest.approx(20 / 6)
    # another text than the traced one: the prompt's own rounds per token still tell more than those of all prompts
    assert accept_length_of([sent("a", tokens=5)], TRACED) == pytest.approx(5.0)
    # what was not traced counts as it was measured, what failed not at all
    assert accept_length_of([sent("a"), sent("e"), sent("b", error="no answer")], TRACED) == pytest.approx(20 / 11)
    assert accept_length_of([sent("e")], TRACED) == TRACED.accept_length.value
    assert accept_length_of([], TRACED) == TRACED.accept_length.value
