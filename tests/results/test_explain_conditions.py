"""What makes reported numbers mean something else: the metric, the cache, the text, sampling, the harness."""

from __future__ import annotations

import pytest
from explained import CHAIN_3, evidence, other, verdicts


def test_acceptance_falls_with_the_context() -> None:
    row = {**CHAIN_3, "target_class": "qwen3", "num_layers": 36}
    explanation, answers = verdicts(
        {**row, "context_tokens": 1000, "accept_length": 2.4}, {**row, "context_tokens": 4000, "accept_length": 1.2}
    )
    assert other(explanation, "context_length") == "yes"
    assert "position range" in evidence(explanation, "context_length")
    assert "yes" not in answers


def test_even_acceptance_over_contexts_is_cleared() -> None:
    explanation, _ = verdicts(
        {**CHAIN_3, "context_tokens": 1000, "accept_length": 2.4},
        {**CHAIN_3, "context_tokens": 4000, "accept_length": 2.42},
    )
    assert other(explanation, "context_length") == "no"


def test_speculation_is_capped_at_48_requests() -> None:
    explanation, _ = verdicts(
        {**CHAIN_3, "accept_length": 2.6, "concurrency": 64, "output_throughput": 900.0},
        {"role": "baseline", "concurrency": 64, "output_throughput": 1000.0},
    )
    assert other(explanation, "harness") == "yes"
    text = evidence(explanation, "harness")
    assert "48" in text
    assert "unfair" in text
    fair, _ = verdicts({**CHAIN_3, "accept_length": 2.6, "concurrency": 64, "max_running_requests": 256})
    assert other(fair, "harness") == "no"


def test_a_running_average_is_not_this_runs_accept_length() -> None:
    explanation, _ = verdicts(
        {**CHAIN_3, "verify_steps": 4000, "completion_tokens": 12000, "accept_length": 3.0, "label": "one"},
        {**CHAIN_3, "verify_steps": 1000, "completion_tokens": 2000, "accept_length": 2.8, "label": "two"},
    )
    assert other(explanation, "metric") == "yes"
    text = evidence(explanation, "metric")
    assert "2.000" in text
    assert "running average over 2 workloads" in text
    assert explanation.gap is not None
    assert explanation.gap["suspect"]["accept_length"] == pytest.approx(2.0)


def test_per_request_identities() -> None:
    good = {
        "num_steps": 5,
        "eagle_topk": 4,
        "num_draft_tokens": 6,
        "completion_tokens": 106,
        "verify_steps": 43,
        "drafts": 215,
        "accepted": 63,
        "accept_length": 2.4651162790697674,
        "histogram": [11, 14, 11, 4, 0, 3],
    }
    explanation, _ = verdicts(good)
    assert other(explanation, "metric") is None
    assert explanation.gap is not None
    assert explanation.gap["suspect"]["p1"] == pytest.approx(32 / 43, abs=1e-6)
    explanation, _ = verdicts({**good, "accepted": 64})
    assert other(explanation, "metric") == "yes"
    assert "the histogram accepts 63 drafts, the row says 64" in evidence(explanation, "metric")


@pytest.mark.parametrize(("rate", "words"), [(0.5, None), (0.625, "AL/n"), (0.70, "fits neither")])
def test_which_acceptance_rate_it_is(rate: float, words: str | None) -> None:
    explanation, _ = verdicts({**CHAIN_3, "accept_length": 2.5, "drafts": 10000, "accepted": int(10000 * rate)})
    if words is None:
        assert other(explanation, "metric") is None
    else:
        assert words in evidence(explanation, "metric")


def test_conditional_positions_are_recognised() -> None:
    explanation, _ = verdicts({**CHAIN_3, "accept_length": 2.5, "acceptance_by_position": [0.75, 0.75, 0.33]})
    assert "conditional" in evidence(explanation, "metric")


def test_accept_lengths_that_cannot_be() -> None:
    for length in (4.6, 0.4):
        explanation, answers = verdicts({**CHAIN_3, "accept_length": length})
        assert other(explanation, "metric") == "yes"
        assert "cannot be" in evidence(explanation, "metric")
        assert answers == ("undecided",) * 3


def test_a_warm_cache_is_excluded() -> None:
    explanation, _ = verdicts(
        {**CHAIN_3, "label": "one", "cached_token_share": 0.0, "output_throughput": 1000.0, "accept_length": 2.5},
        {**CHAIN_3, "label": "two", "cached_token_share": 0.9, "output_throughput": 1860.0, "accept_length": 2.5},
    )
    assert other(explanation, "cache") == "yes"
    text = evidence(explanation, "cache")
    assert "two is warm" in text
    assert "excluded from ranking" in text
    assert "1.86 x" in text
    explanation, _ = verdicts({**CHAIN_3, "cached_token_share": 0.005, "accept_length": 2.5})
    assert other(explanation, "cache") == "no"


def test_degenerate_text_is_excluded() -> None:
    explanation, answers = verdicts({**CHAIN_3, "accept_length": 3.93, "output_tokens": 500, "distinct_tokens": 2})
    assert other(explanation, "degenerate") == "yes"
    assert "degenerate output" in evidence(explanation, "degenerate")
    assert "GSM8K" in evidence(explanation, "degenerate")
    assert answers == ("undecided",) * 3
    explanation, answers = verdicts({**CHAIN_3, "accept_length": 2.6, "output_tokens": 500, "distinct_tokens": 210})
    assert other(explanation, "degenerate") == "no"


def test_simulated_acceptance_seen_in_equal_accept_lengths() -> None:
    layouts = ([0, 3, 31], [2, 30, 58], [3, 31, 59])
    explanation, answers = verdicts(*({**CHAIN_3, "layout_taps": taps, "accept_length": 3.24} for taps in layouts))
    assert other(explanation, "simulated") == "yes"
    assert "simulated acceptance left on" in evidence(explanation, "simulated")
    assert answers == ("undecided",) * 3
    explanation, _ = verdicts(
        {**CHAIN_3, "layout_taps": layouts[0], "accept_length": 3.24, "role": "suspect"},
        {**CHAIN_3, "layout_taps": layouts[1], "accept_length": 3.24, "role": "control"},
    )
    assert other(explanation, "simulated") == "yes"


def test_simulated_acceptance_that_is_told() -> None:
    explanation, answers = verdicts({**CHAIN_3, "accept_length": 3.24, "flags": {"SGLANG_SIMULATE_ACC_LEN": "3.24"}})
    assert other(explanation, "simulated") == "yes"
    assert answers == ("undecided",) * 3
    explanation, _ = verdicts({**CHAIN_3, "accept_length": 3.24, "flags": {"SGLANG_SIMULATE_ACC_LEN": -1}})
    assert other(explanation, "simulated") is None


def test_one_layout_spelled_twice_is_not_simulated() -> None:
    qwen = {**CHAIN_3, "target_class": "qwen3", "num_layers": 36, "accept_length": 2.6}
    explanation, _ = verdicts(qwen, {**qwen, "layout_ids": [1, 17, 32]})
    assert other(explanation, "simulated") is None


def test_sampling() -> None:
    hot = {**CHAIN_3, "accept_length": 1.9, "temperature": 1.0}
    explanation, _ = verdicts(hot)
    assert other(explanation, "sampling") == "undecided"
    explanation, _ = verdicts(hot, {**hot, "temperature": 0.0, "accept_length": 2.6})
    assert other(explanation, "sampling") == "yes"


@pytest.mark.parametrize(
    ("length", "rate", "words"),
    [(1.94, 48.5, "AL/n"), (2.99, 66, None), (3.93, 74.6, "fits neither"), (2.5, 0.625, "AL/n"), (2.5, 0.5, None)],
)
def test_reported_rates_are_named(length: float, rate: float, words: str | None) -> None:
    explanation, _ = verdicts({**CHAIN_3, "accept_length": length, "flags": {"accept_rate": rate}})
    if words is None:
        assert other(explanation, "metric") is None
    else:
        assert words in evidence(explanation, "metric")


def test_graphs_on_one_side_only() -> None:
    with_graphs = {**CHAIN_3, "accept_length": 2.6, "cuda_graph": True}
    explanation, _ = verdicts(with_graphs, {**with_graphs, "cuda_graph": False})
    assert other(explanation, "harness") == "yes"
