"""Output identity by prompt."""

from __future__ import annotations

from result_builders import row

from results.output_identity import compare_outputs, first_divergence


def test_where_two_outputs_part() -> None:
    assert first_divergence((1, 2, 3), (1, 2, 3)) is None
    assert first_divergence((1, 2, 3), (1, 9, 3)) == 1
    assert first_divergence((1, 2), (1, 2, 3)) == 2


def test_outputs_are_compared_by_prompt_and_failures_left_out() -> None:
    first = [row(prompt_id=p, output_ids=ids) for p, ids in (("a", (1, 2, 3)), ("b", (4, 5)), ("c", (6,)), ("d", (7,)))]
    second = [row(prompt_id="b", output_ids=(4, 5)), row(prompt_id="a", output_ids=(1, 2, 9))]
    second.append(row(prompt_id="c", output_ids=(), error="lost"))
    identity = compare_outputs(first, second)
    assert identity.shared == 2
    assert identity.divergences == (2,)
    assert identity.identical_share == 0.5
    assert str(identity) == "1 of 2 outputs differ, from token 2 on at the earliest (median 2)"
    assert str(compare_outputs(first, first)) == "all 4 outputs are identical"
    assert compare_outputs(first, []).identical_share is None
