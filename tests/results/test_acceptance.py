"""Acceptance arithmetic: golden values of published requests and the identities behind them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import row, spec_row

from results.acceptance import (
    accept_length_from_drafts,
    accept_rate,
    acceptance_by_position,
    conditional_acceptance,
    counter_problem,
    pooled_histogram,
    rate_definition,
    read_server_average,
    survival_accept_length,
)
from search_spaces.config import Triple

CHAIN_5 = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
HISTOGRAMS = st.lists(st.integers(0, 50), min_size=1, max_size=8)


def test_published_request_passes_every_identity() -> None:
    published = row()
    assert counter_problem(published, CHAIN_5) is None
    assert published.completion_tokens / published.verify_steps == pytest.approx(2.4651162790697674)
    assert published.correct_drafts / published.proposed_drafts == pytest.approx(0.2930232558139535)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"correct_drafts": 64}, "accepts 63 drafts, the server 64"),
        ({"verify_steps": 44}, "counts 43 verify steps, the server 44"),
        ({"proposed_drafts": 172}, "172 proposed drafts are not 43 verify steps x 5"),
        ({"proposed_drafts": 50}, "63 accepted of 50"),
        ({"completion_tokens": 108}, "108 tokens from 43 verify steps with 63 accepted"),
        ({"histogram": (11, 14, 11, 4, 0, 3, -1)}, "negative"),
    ],
)
def test_inconsistent_counters_are_named(changes: dict[str, object], words: str) -> None:
    assert words in (counter_problem(row(**changes), CHAIN_5) or "")


def test_a_step_cannot_accept_more_than_num_steps() -> None:
    three = Triple(num_steps=3, eagle_topk=1, num_draft_tokens=6)
    assert "more than num_steps = 3" in (counter_problem(row(), three) or "")


def test_tokens_may_be_fewer_than_the_counters_allow_but_never_more() -> None:
    assert counter_problem(row(completion_tokens=107), CHAIN_5) is None  # with the prefill's token
    assert counter_problem(row(completion_tokens=101), CHAIN_5) is None  # cut at the end of the request


def test_positions_of_the_published_histogram() -> None:
    positions = acceptance_by_position((11, 14, 11, 4, 0, 3))
    assert [round(share, 3) for share in positions] == [0.744, 0.419, 0.163, 0.070, 0.070]
    assert positions[0] == 32 / 43


def test_positions_are_padded_to_the_number_of_steps() -> None:
    assert acceptance_by_position((3, 1), num_steps=3) == (0.25, 0.0, 0.0)
    assert acceptance_by_position((0, 0)) == ()


def test_conditional_acceptance_divides_by_those_who_got_there() -> None:
    assert conditional_acceptance((0.8, 0.4, 0.0, 0.0)) == (0.8, 0.5, 0.0, None)


@given(HISTOGRAMS.filter(lambda histogram: sum(histogram) > 0))
def test_survival_over_all_positions_is_the_accept_length(histogram: list[int]) -> None:
    positions = acceptance_by_position(histogram, num_steps=8)
    correct = sum(i * count for i, count in enumerate(histogram))
    assert survival_accept_length(positions, 8) == pytest.approx(1 + correct / sum(histogram))
    assert all(earlier >= later for earlier, later in pairwise(positions))
    assert 1 <= survival_accept_length(positions, 3) <= 4


@given(st.lists(HISTOGRAMS, max_size=5))
def test_pooling_adds_position_by_position(histograms: list[list[int]]) -> None:
    pooled = pooled_histogram(histograms)
    assert sum(pooled) == sum(sum(histogram) for histogram in histograms)
    assert sum(i * c for i, c in enumerate(pooled)) == sum(i * c for h in histograms for i, c in enumerate(h))


@given(HISTOGRAMS, st.integers(8, 20))
def test_counters_made_from_a_histogram_are_consistent(histogram: list[int], num_draft_tokens: int) -> None:
    triple = Triple(num_steps=8, eagle_topk=2, num_draft_tokens=num_draft_tokens)
    assert counter_problem(spec_row("p", histogram, num_draft_tokens), triple) is None


def test_survival_refuses_more_steps_than_were_measured() -> None:
    assert survival_accept_length((0.6541, 0.3993, 0.2020), 3) == pytest.approx(2.2554)
    with pytest.raises(ValueError, match="between 1 and 3, not 4"):
        survival_accept_length((0.6, 0.4, 0.2), 4)


def test_accept_length_from_accepted_drafts() -> None:
    length = accept_length_from_drafts(accepted=341, proposed=28281, draft_tokens_per_step=3)
    assert length == pytest.approx(1.036, abs=5e-4)


def test_the_two_rates_of_one_accept_length() -> None:
    assert accept_rate(2.5, 4, "correct_over_proposed") == pytest.approx(0.50)
    assert accept_rate(2.5, 4, "tokens_over_draft_tokens") == pytest.approx(0.625)


@pytest.mark.parametrize(
    ("length", "rate", "definition"),
    [
        (1.94, 0.485, "tokens_over_draft_tokens"),
        (2.99, 0.66, "correct_over_proposed"),
        (3.93, 0.746, None),
    ],
)
def test_reported_rates_are_recognised_or_flagged(length: float, rate: float, definition: str | None) -> None:
    assert rate_definition(length, 4, rate) == definition


def test_server_average_is_absent_after_a_short_run_and_never_zero() -> None:
    value, reason = read_server_average({"internal_states": [{"last_gen_throughput": 812.0}]})
    assert value is None
    assert "fewer than one log interval" in (reason or "")
    assert read_server_average({}) == (None, "the server reports no internal states")
    assert read_server_average({"internal_states": [{"avg_spec_accept_length": 2.8}]}) == (2.8, None)
    two = {"internal_states": [{"avg_spec_accept_length": 2.8}, {"avg_spec_accept_length": 2.0}]}
    assert read_server_average(two) == (None, "2 data-parallel ranks, whose averages cannot be combined")
    for impossible in (0.0, 0.5, float("nan"), True, "2.8"):
        value, reason = read_server_average({"internal_states": [{"avg_spec_accept_length": impossible}]})
        assert value is None
        assert "no accept length can be" in (reason or "")
    quiet = {"internal_states": [{}], "speculative_algorithm": None}
    assert read_server_average(quiet) == (None, "no speculation")
