"""Probes of real servers: every slot's tap by name for several layouts, at tp 1 and 2, and planted faults by kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles.tp_fault import fault_environment
from server_specs import real_spec, speculative
from tiny_models import TinyPair

from actors.engines.guarded_process import find_leftovers
from actors.engines.switching_server import SwitchingServer
from actors.job import TrialJob
from actors.load.workload import Workload, prompt_of
from actors.probing import run_probe
from results.feed import FeedCapture, describe_feed, match_feed
from search_spaces.config import Taps, Triple

pytestmark = pytest.mark.server

POOLS = Triple(num_steps=2, eagle_topk=1, num_draft_tokens=3)
LAYOUTS: tuple[Taps, ...] = ((0, 3, 7), (2, 4, 5), (1, 4, 6), (0, 1, 2))
WORKLOAD = Workload(
    prompts=tuple(prompt_of(text) for text in ("the quick brown fox", "once upon a time there was a", "a little")),
    warmup=(),
    concurrency=(1,),
    max_new_tokens=8,
    temperature=0.0,
    ignore_eos=True,
    stream=True,
    request_timeout_s=120.0,
    max_attempts=1,
)


def probe_all(
    pair: TinyPair, folder: Path, tp_size: int, layouts: tuple[Taps, ...], environment: dict[str, str] | None = None
) -> list[tuple[FeedCapture, ...]]:
    """One server, switched from layout to layout, probed in each."""
    args = {"context_length": 512, "max_total_tokens": 4096}
    spec = real_spec(pair, folder, args=args, environment=environment or {})
    engine = SwitchingServer(spec, pools=POOLS)
    try:
        feeds = []
        for layout in layouts:
            config = speculative(2, 1, 3, layout=layout, tp_size=tp_size)
            job = TrialJob(trial_id="probe", config=config, workload=WORKLOAD, probe_tokens=24)
            outcome = run_probe(engine, job, 24)
            assert outcome.failure is None, outcome.failure.log_tail
            assert [feed.rank for feed in outcome.feeds] == list(range(tp_size))
            feeds.append(outcome.feeds)
    finally:
        engine.close()
    assert find_leftovers(spec.owner) == []
    return feeds


@pytest.fixture(scope="module")
def at_tp1(tiny_pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[FeedCapture, ...]]:
    return probe_all(tiny_pair, tmp_path_factory.mktemp("tp1"), 1, LAYOUTS)


def test_every_slot_is_named_for_every_layout_at_tp_1_and_2(
    tiny_pair: TinyPair, tmp_path: Path, at_tp1: list[tuple[FeedCapture, ...]]
) -> None:
    at_tp2 = probe_all(tiny_pair, tmp_path, 2, LAYOUTS)
    for layout, alone, split in zip(LAYOUTS, at_tp1, at_tp2, strict=True):
        for feeds in (alone, split):
            report = match_feed(feeds, alone[0], slots=3)
            assert report.layout == layout
            assert report.fault is None
            assert report.tokens > 8
            assert max(match.error for match in report.matches) < 1e-4
            assert min(match.next_error for match in report.matches) > 0.01
            assert f"taps {list(layout)} on" in describe_feed(report)


@pytest.mark.parametrize("kind", ["partial", "sliced"])
def test_a_planted_fault_is_named_by_its_kind(
    tiny_pair: TinyPair, tmp_path: Path, at_tp1: list[tuple[FeedCapture, ...]], kind: str
) -> None:
    environment = fault_environment(kind, tmp_path / "fault")  # type: ignore[arg-type]
    ((feeds,)) = probe_all(tiny_pair, tmp_path / "work", 2, LAYOUTS[:1], environment)
    report = match_feed(feeds, at_tp1[0][0], slots=3)
    assert report.fault == kind
    assert [match.tap for match in report.matches if match.rank == 1] == list(LAYOUTS[0])
    assert report.layout is None
