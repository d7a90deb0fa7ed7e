"""The demo on real servers, before and after: every setting launched and TPE, against traces, switching and surface.

Writes `benchmarks/results/demo_before_after.json`: weight loads, wall time and winner of each.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from demo_sweeps import ROOT, specsweep

from benchmarks.result_file import write_result
from results.search_notes import read_notes
from results.store import StudyFolder

DEMO = ROOT / "sweeps" / "specs" / "demo.yaml"
RESULTS = ROOT / "benchmarks" / "results" / "demo_before_after.json"
ALIKE = ("engine.device=cpu", "tracking.enabled=false", "isolate=false", "budget.wall_time_s=1500")
"""The same for both; verdicts take servers of their own, whatever the search does."""

BEFORE = ("engine.switching=off", "search.sampler=tpe")
AFTER = ("engine.switching=on", "search.sampler=surface")
ENDED = ("search.stop_at_gain=0.01",)


@pytest.mark.evidence
@pytest.mark.server
@pytest.mark.timeout(3600)
def test_the_demo_needs_fewer_weight_loads_for_the_same_winner(tmp_path: Path) -> None:
    before = Demo(tmp_path, "demo-before", BEFORE)
    after = Demo(tmp_path, "demo-after", AFTER)
    ended = Demo(tmp_path, "demo-ended", AFTER + ENDED)
    result = {
        "spec": "sweeps/specs/demo.yaml",
        "before": before.to_json(),
        "after": after.to_json(),
        "after_stopping_at_1_percent": ended.to_json(),
    }
    write_result(RESULTS, command="python -m pytest -m evidence tests/sweeps/test_demo_before_after.py", content=result)
    assert before.settings == after.settings
    assert ended.settings <= after.settings
    assert after.weight_loads < before.weight_loads / 1.5
    assert after.wall_s < before.wall_s
    for demo in (after, ended):
        # equal servers may swap places within the noise; the winner of one is then a tie of the other
        assert demo.winner in before.leaders
        assert demo.notes is not None
        assert demo.notes["fallback"] is None
        assert demo.report["switching"]["checks"]
        lengths = [check for check in demo.report["switching"]["checks"] if check["concurrency"] == 1]
        assert all(check["equal_prompts"] == check["prompts"] for check in lengths)


class Demo:
    """One run of the demo's spec to its end."""

    def __init__(self, folder: Path, study: str, changes: tuple[str, ...]) -> None:
        sets = [word for change in (f"study={study}", *ALIKE, *changes) for word in ("--set", change)]
        started = time.monotonic()
        specsweep(folder, "run", str(DEMO), *sets, timeout_s=1700)
        self.wall_s = time.monotonic() - started
        self.report: dict[str, Any] = json.loads(
            specsweep(folder, "report", study, "--json", "--no-plots", timeout_s=120)
        )
        self._folder = StudyFolder(folder / "home" / study)
        notes = read_notes(self._folder)
        self.notes = None if notes is None else notes.to_json()
        self._by_id = {row["id"]: row for row in self.report["settings"]}

    @property
    def weight_loads(self) -> int:
        """Servers that were started: those of the records, and of traces."""
        records = self._folder.records()
        launched = sum(record.launch is None or record.launch.weights_loaded for record in records)
        return launched + (0 if self.notes is None else self.notes["weight_loads"])

    @property
    def settings(self) -> set[str]:
        return {row["id"] for row in self.report["settings"] if row["status"] == "ranked"}

    @property
    def winner(self) -> str:
        best: str = self.report["best"]
        return best

    @property
    def leaders(self) -> set[str]:
        """The best one and those that cannot be told from it."""
        alike = ("best", "tie", "cannot tell")
        return {row["id"] for row in self.report["settings"] if row["standing"] in alike}

    def to_json(self) -> dict[str, Any]:
        best = self._by_id[self.winner]
        return {
            "wall_s": round(self.wall_s, 1),
            "weight_loads": self.weight_loads,
            "settings": len(self.settings),
            "winner": {key: best[key] for key in ("layout", "num_steps", "eagle_topk", "num_draft_tokens", "tp_size")},
            "tokens_per_s": best["objective"],
            "accept_length": best["accept_length"],
            "leaders": len(self.leaders),
            "switching": self.report["switching"],
            "search": self.notes,
            "findings": self.report["findings"],
        }
