"""Real servers: a switched server is a fresh one, and a trace predicts what is measured. All to the unit."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from live_servers import (
    DEFAULT,
    TRAINED,
    ask_all,
    config,
    demo_spec,
    demo_texts,
    greedy_workload,
    launched,
    running,
)
from process_memory import memory_of

from actors.engines.switching_server import SwitchingServer
from actors.tracing import TraceOutcome, TraceRequest, trace_workload, tracing_config
from results.degenerate import is_degenerate
from results.surface import replay_trace
from results.traces import Trace
from search_spaces.config import Triple

pytestmark = pytest.mark.server

POOLS = Triple(num_steps=5, eagle_topk=4, num_draft_tokens=16)
FRESH = (TRAINED, (3, 4, 8))
SWITCHED = [(DEFAULT, (3, 1, 4)), FRESH]
LOOPING = "ash ash ash ash ash"
"""A prompt that the demo's target goes on with for ever."""
PREDICTED = [(4, 4, 8), (3, 4, 8), (4, 4, 16), (3, 1, 4), (1, 1, 2)]


def test_switched_is_fresh_and_traced_is_measured(tmp_path: Path) -> None:
    """Two launches for all of it: they are what takes the time. One of the texts is a loop."""
    load = greedy_workload([*demo_texts(4), LOOPING], 32)
    with running(demo_spec(tmp_path / "fresh"), config(*FRESH)) as fresh_server:
        fresh = ask_all(fresh_server.base_url, load)
    assert [is_degenerate(took.output_ids) for took in fresh.values()] == [False] * 4 + [True]
    server = SwitchingServer(demo_spec(tmp_path / "switching"), pools=POOLS)
    try:
        started = time.monotonic()
        launched(server.apply(config(DEFAULT, (5, 4, 16))))
        launch_s = time.monotonic() - started
        by_layout = []
        for layout, triple in SWITCHED:
            observation = launched(server.apply(config(layout, triple)))
            assert observation.switch_s is not None
            assert observation.switch_s < launch_s / 10
            by_layout.append(ask_all(server.base_url, load))
        assert by_layout[-1] == fresh

        # without the texts, the first poison of the chain's trace is a token that the target says
        said = max(max(took.output_ids) for took in fresh.values())
        for topk in (4, 1):
            request = TraceRequest(
                config=tracing_config(config(TRAINED, (1, 1, 2)), num_steps=4, eagle_topk=topk),
                workload=load,
                concurrency=4,
                ties="libstdcxx",
                vocabulary=demo_spec(tmp_path / "x").target.vocab_size if topk == 4 else said + 1,
                expected={key: took.output_ids for key, took in fresh.items()} if topk == 4 else {},
            )
            outcome = trace_workload(server, request, tmp_path / "traces")
            assert isinstance(outcome, TraceOutcome), outcome
            assert outcome.problems == ()
            trace = Trace(outcome.folder)
            for triple in [triple for triple in PREDICTED if triple[1] == topk]:
                launched(server.apply(config(TRAINED, triple)))
                measured = ask_all(server.base_url, load)
                predicted, _ = replay_trace(trace, [_triple(triple)])
                for i, prompt in enumerate(trace.prompts):
                    took = measured[prompt.prompt_id]
                    assert prompt.output_ids[: prompt.length] == took.output_ids
                    assert predicted.rounds[0, i] == took.verify_steps, (triple, prompt.prompt_id)
                    histogram = np.trim_zeros(predicted.histogram[0, i], "b")
                    assert tuple(histogram.tolist()) == took.histogram, (triple, prompt.prompt_id)

        # everything was run once by now: thirty switches more leave the memory flat
        settings = [config(layout, triple) for layout in (TRAINED, DEFAULT) for triple in PREDICTED]
        before = memory_of(launched(server.apply(settings[-1])).pid)
        for setting in settings * 3:
            pid = launched(server.apply(setting)).pid
        assert memory_of(pid).anonymous - before.anonymous < 25
    finally:
        server.close()


def _triple(numbers: tuple[int, int, int]) -> Triple:
    return Triple(num_steps=numbers[0], eagle_topk=numbers[1], num_draft_tokens=numbers[2])
