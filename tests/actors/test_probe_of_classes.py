"""The probe on real servers of other target classes than Llama: by membership, and by marks on blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from server_specs import real_spec, speculative
from tiny_models import make_tiny_pair

from actors.engines.guarded_process import find_leftovers
from actors.engines.switching_server import SwitchingServer
from actors.job import TrialJob
from actors.load.workload import Workload, prompt_of
from actors.probing import run_probe
from benchmarks.machine import machine
from results.feed import describe_feed, match_feed
from search_spaces.config import Taps, Triple

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "probe_classes.json"
LAYOUTS: tuple[Taps, ...] = ((2, 4, 5), (0, 3, 7))
WORKLOAD = Workload(
    prompts=tuple(prompt_of(text) for text in ("the quick brown fox", "once upon a time there was a")),
    warmup=(),
    concurrency=(1,),
    max_new_tokens=8,
    temperature=0.0,
    ignore_eos=True,
    stream=True,
    request_timeout_s=120.0,
    max_attempts=1,
)


@pytest.mark.server
@pytest.mark.evidence
@pytest.mark.parametrize("target_class", ["Qwen3ForCausalLM", "Qwen3MoeForCausalLM"])
def test_every_slot_is_named_on_other_classes(target_class: str, tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path / "pair", target_class=target_class)
    spec = real_spec(pair, tmp_path / "work", args={"context_length": 512, "max_total_tokens": 4096})
    engine = SwitchingServer(spec, pools=Triple(num_steps=2, eagle_topk=1, num_draft_tokens=3))
    rows: list[dict[str, Any]] = []
    try:
        for layout in LAYOUTS:
            config = speculative(2, 1, 3, layout=layout)
            job = TrialJob(trial_id="probe", config=config, workload=WORKLOAD, probe_tokens=24)
            outcome = run_probe(engine, job, 24)
            assert outcome.failure is None, outcome.failure.log_tail
            report = match_feed(outcome.feeds, outcome.feeds[0], slots=3)
            assert report.layout == layout
            assert report.fault is None
            assert max(match.error for match in report.matches) < 1e-4
            assert min(match.next_error for match in report.matches) > 0.01
            rows.append({"target_class": target_class, "layout": list(layout), "sentence": describe_feed(report)})
    finally:
        engine.close()
    assert find_leftovers(spec.owner) == []
    kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.is_file() else []
    rows = [row for row in kept if row["target_class"] != target_class] + rows
    content = {
        "schema": 1,
        "command": "pytest -m evidence tests/actors/test_probe_of_classes.py",
        "machine": machine("sglang", "torch"),
        "repeats": 1,
        "tp_size": 1,
        "rows": sorted(rows, key=lambda row: (row["target_class"], row["layout"])),
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
