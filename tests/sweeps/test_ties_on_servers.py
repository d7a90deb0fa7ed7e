"""Real servers: settings that are the same in effect tie, and one that is worse by three noise floors is worse.

How often a server writes a line of statistics (`decode_log_interval`) changes nothing that is measured, but makes two
settings of one: they are searched, launched and measured apart.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from demo_sweeps import ROOT, run_sweep

from benchmarks.result_file import write_result

RESULTS = ROOT / "benchmarks" / "results" / "ties.json"
PROMPTS, TOKENS = 96, 64

SECTIONS = f"""\
space:
  layout: [[0, 3, 7], [5, 6, 7]]
  num_steps: [5]
  eagle_topk: [1]
  num_draft_tokens: [6]
  flags: {{{{decode_log_interval: [40, 50]}}}}
workload:
  prompts: {{prompts}}
  count: {PROMPTS}
  max_new_tokens: {TOKENS}
  concurrency: [4]
  ignore_eos: true
  half_width: null
budget: {{{{repeats: 2, baselines: 2, confirmations: 2}}}}
"""


@pytest.mark.evidence
@pytest.mark.server
@pytest.mark.timeout(1200)
def test_equals_tie_and_a_worse_setting_is_worse(tmp_path: Path) -> None:
    report = run_sweep(tmp_path, "ties", SECTIONS, prompt_count=PROMPTS + 8, timeout_s=1000)
    floor = report["noise_floor"]
    rows = [row_of(setting) for setting in report["settings"]]
    result = {
        "load": {"prompts": PROMPTS, "max_new_tokens": TOKENS, "concurrency": 4},
        "noise_floor": floor,
        "summary": report["summary"],
        "settings": rows,
        "baseline": [row_of(setting) for setting in report["baselines"]],
    }
    write_result(RESULTS, command="python -m pytest -m evidence tests/sweeps/test_ties_on_servers.py", content=result)
    assert floor["repeats"] >= 5
    assert [row["layout"] for row in rows] == ["0,3,7", "0,3,7", "5,6,7", "5,6,7"]
    best, equal, *worse = rows
    assert (best["standing"], equal["standing"]) == ("best", "tie")
    assert abs(equal["log_distance"]) <= floor["relative"]
    for row in worse:
        assert row["log_distance"] > 3 * floor["relative"], "the planted difference drowns in this machine's noise"
        assert row["standing"] == "worse"


def row_of(setting: dict[str, Any]) -> dict[str, Any]:
    """One setting against the best one, on the scale of the noise floor: the logarithm of the ratio."""
    behind = setting["behind_best"]
    return {
        "layout": setting["layout"],
        "flags": setting["flags"],
        "trials": setting["trials"],
        "output_throughput": setting["objective"],
        "accept_length": setting["accept_length"] and setting["accept_length"]["value"],
        "standing": setting["standing"],
        "behind_best": behind,
        "log_distance": None if behind is None else -math.log1p(-behind),
    }
