"""Limits out of a server's resolved arguments: how many requests at once, and decoding without CUDA graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from result_builders import cell, closed_loop, config, launch, record, row, summary

from results.cells import summarise_cell
from results.objective import Objective
from results.ranking import rank
from results.server_limits import EFFECTIVE_LIMIT, graph_problem, request_limit


def graphs(**decode: Any) -> dict[str, Any]:
    """As `/server_info` of SGLang 0.5.23 gives them."""
    phase = {"backend": "full", "max_bs": 32, "bs": [1, 2, 4, 8, 16, 32], **decode}
    return {
        "device": "cuda",
        "disable_cuda_graph": False,
        "disable_cuda_graph_padding": False,
        "cuda_graph_max_bs_decode": None,
        "cuda_graph_config": {"decode": phase, "prefill": {"backend": "disabled", "max_bs": 4096}},
    }


@pytest.mark.parametrize(
    ("args", "in_flight", "problem"),
    [
        (graphs(), 32, None),
        (graphs(), 33, "decoding 33 requests at once runs without CUDA graphs, which cover batches up to 32"),
        (graphs(max_bs=None), 33, "batches up to 32"),
        (graphs(backend="disabled"), 1, "decoding runs without CUDA graphs (they are disabled)"),
        (graphs(backend="breakable"), 8, None),
        # no more than the limit is decoded at once, whoever waits
        ({**graphs(max_bs=48, bs=None), "max_running_requests": 48}, 64, None),
        ({**graphs(max_bs=40, bs=None), "max_running_requests": 48}, 64, "decoding 48 requests at once"),
        # data-parallel ranks share the requests
        ({**graphs(), "dp_size": 2}, 64, None),
        ({**graphs(), "dp_size": 2}, 66, "decoding 33 requests at once"),
        # without padding only captured sizes run in a graph
        (graphs(), 7, None),
        ({**graphs(), "disable_cuda_graph_padding": True}, 7, "no batch of that size was captured"),
        ({**graphs(), "disable_cuda_graph_padding": True}, 8, None),
        # older releases, and flags as they were given
        ({"device": "cuda", "disable_cuda_graph": True}, 1, "they are disabled"),
        ({"device": "cuda", "disable_decode_cuda_graph": True}, 1, "they are disabled"),
        ({"device": "cuda", "cuda_graph_backend_decode": "disabled"}, 1, "they are disabled"),
        ({"device": "cuda", "cuda_graph_max_bs": 4}, 8, "batches up to 4"),
        ({"device": "cuda", "cuda_graph_max_bs_decode": 4}, 8, "batches up to 4"),
        ({"device": "cuda", "cuda_graph_bs": [1, 2]}, 8, "batches up to 2"),
        ({**graphs(backend="disabled"), "device": "cpu"}, 8, None),
        ({"device": "cuda"}, 100, None),
        ({"device": "cuda", "cuda_graph_config": "text", "cuda_graph_max_bs": 0}, 8, None),
    ],
)
def test_decoding_without_graphs_at_the_measured_batch(
    args: dict[str, Any], in_flight: int, problem: str | None
) -> None:
    found = graph_problem(args, in_flight)
    assert (found is None) is (problem is None), found
    assert problem is None or problem in (found or "")
    rows = closed_loop([1.0] * 2 * in_flight, in_flight)
    summarised = summarise_cell(cell(rows, concurrency=in_flight), None, server_args=args)
    assert any("CUDA graphs" in warning for warning in summarised.warnings) is (problem is not None)


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        ({}, None),
        ({"max_running_requests": None}, None),
        ({"max_running_requests": 48}, 48),
        ({"max_running_requests": 48, EFFECTIVE_LIMIT: 12}, 12),
        ({"max_running_requests": None, EFFECTIVE_LIMIT: 12}, 12),
        ({"max_running_requests": True, EFFECTIVE_LIMIT: 0}, None),
    ],
)
def test_the_limit_is_the_lower_of_what_was_told_and_what_fits(args: dict[str, Any], limit: int | None) -> None:
    assert request_limit(args) == limit


def open_loop_rows(at_once: int) -> list[Any]:
    """Twice as many requests as are ever in flight: they come in two waves."""
    return [
        row(prompt_id=f"p{i}", sent_s=2.0 * (i // at_once), finished_s=2.0 * (i // at_once) + 1.5)
        for i in range(2 * at_once)
    ]


def test_an_open_loop_is_judged_by_what_was_really_in_flight() -> None:
    observed = cell(open_loop_rows(40), concurrency=0, request_rate=20.0)
    found = summarise_cell(observed, None, server_args={**graphs(), "max_running_requests": 36})
    assert found.most_in_flight == 40
    assert any("at most 36 requests at once" in warning and "4 of 40 wait" in warning for warning in found.warnings)
    assert any("decoding 36 requests at once runs without CUDA graphs" in warning for warning in found.warnings)
    calm = summarise_cell(observed, None, server_args={**graphs(max_bs=64), "max_running_requests": 64})
    assert calm.warnings == ()


@pytest.mark.parametrize(("rate", "concurrency", "at"), [(None, 64, "concurrency 64"), (20.0, 0, "20 requests/s")])
def test_another_limit_than_the_baselines_is_unfair_in_either_loop(
    rate: float | None, concurrency: int, at: str
) -> None:
    def trial(trial_id: str, effective: Any, role: Any, limits: dict[str, Any]) -> Any:
        length = None if effective.is_baseline else 2.5
        first = summary(accept_length=length)
        loaded = replace(first, concurrency=concurrency, request_rate=rate, most_in_flight=64)
        observed = launch(effective_args={"device": "cuda", **limits})
        return record(trial_id, effective, role=role, cells=[first, loaded], launch=observed)

    records = [
        trial("t1", config(), "search", {"max_running_requests": 48, EFFECTIVE_LIMIT: 48}),
        trial("b1", config(None, None), "baseline", {"max_running_requests": None, EFFECTIVE_LIMIT: 2048}),
    ]
    (_, loaded) = rank(records, Objective(concurrency=1)).settings[0].loads
    assert len(loaded.unfair) == 1
    assert "at most 48 requests at once with speculation, 2048 without it" in loaded.unfair[0]
    assert f"at {at}" in loaded.unfair[0]
