"""Probes of real servers: every slot's tap by name for several layouts, at tp 1 and 2, and planted faults by kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles.tp_fault import fault_environment, plant
from live_servers import greedy_workload
from server_specs import real_spec, speculative
from tiny_models import TinyPair
from tokenizers import Tokenizer

from actors.engines.guarded_process import find_leftovers
from actors.engines.switching_server import SwitchingServer
from actors.job import TrialJob
from actors.probing import run_probe, shortest_prompts
from results.feed import FeedCapture, describe_feed, match_feed
from search_spaces.config import Taps, Triple

pytestmark = pytest.mark.server

POOLS = Triple(num_steps=2, eagle_topk=1, num_draft_tokens=3)
LAYOUTS: tuple[Taps, ...] = ((0, 3, 7), (2, 4, 5), (1, 4, 6), (0, 1, 2))
WORKLOAD = greedy_workload(("the quick brown fox", "once upon a time there was a", "a little"), 8, stream=True)


def probe(engine: SwitchingServer, layout: Taps, tp_size: int) -> tuple[FeedCapture, ...]:
    config = speculative(2, 1, 3, layout=layout, tp_size=tp_size)
    job = TrialJob(trial_id="probe", config=config, workload=WORKLOAD, probe_tokens=24)
    outcome = run_probe(engine, job, 24)
    assert outcome.failure is None, outcome.failure.log_tail
    assert [feed.rank for feed in outcome.feeds] == list(range(tp_size))
    return outcome.feeds


def test_every_slot_and_every_planted_fault_is_named_at_tp_1_and_2(tiny_pair: TinyPair, tmp_path: Path) -> None:
    """One server a TP size, switched from layout to layout; faults are planted into the running one."""
    fault = tmp_path / "fault"
    args = {"context_length": 512, "max_total_tokens": 4096}
    spec = real_spec(tiny_pair, tmp_path / "work", args=args, environment=fault_environment(fault))
    engine = SwitchingServer(spec, pools=POOLS)
    try:
        alone = {layout: probe(engine, layout, 1) for layout in LAYOUTS}
        split = {layout: probe(engine, layout, 2) for layout in LAYOUTS}
        broken = {}
        for kind in ("partial", "sliced"):
            plant(fault, kind)
            broken[kind] = probe(engine, LAYOUTS[0], 2)
    finally:
        engine.close()
    assert find_leftovers(spec.owner) == []
    tokenizer = Tokenizer.from_file(str(tiny_pair.target / "tokenizer.json"))
    sent = [token for prompt in shortest_prompts(WORKLOAD) for token in tokenizer.encode(prompt.text).ids]
    for layout in LAYOUTS:
        for feeds in (alone[layout], split[layout]):
            report = match_feed(feeds, alone[layout][0], slots=3)
            assert report.layout == layout
            assert report.fault is None
            # SGLang's buffers are overwritten by the next batch: what was recorded is what was sent
            assert feeds[-1].input_ids.tolist() == sent[:24]
            assert report.tokens > 8
            assert max(match.error for match in report.matches) < 1e-4
            assert min(match.next_error for match in report.matches) > 0.01
            assert f"taps {list(layout)} on" in describe_feed(report)
    for kind, feeds in broken.items():
        report = match_feed(feeds, alone[LAYOUTS[0]][0], slots=3)
        assert report.fault == kind
        assert [match.tap for match in report.matches if match.rank == 1] == list(LAYOUTS[0])
        assert report.layout is None
