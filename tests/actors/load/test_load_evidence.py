"""What the load client costs, and that it sees what `sglang.bench_serving` sees: as the benchmarks are run by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"

pytestmark = [pytest.mark.evidence, pytest.mark.timeout(1800)]


def result_of(benchmark: str, *argv: str) -> dict[str, Any]:
    out = RESULTS / f"{benchmark}.json"
    command = [sys.executable, f"benchmarks/{benchmark}.py", *argv, "--out", str(out.relative_to(ROOT))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return result


def test_the_client_costs_less_than_a_tenth_of_a_core() -> None:
    result = result_of("client_cost")
    for kind, cost in result["kinds"].items():
        assert cost["tokens_per_s_per_stream"] > 40, kind
        assert cost["cores"] < result["target_cores"], (kind, cost)


@pytest.mark.server
def test_bench_serving_and_the_client_agree_on_one_server() -> None:
    pytest.importorskip("datasets", reason="bench_serving needs it")
    result = result_of(
        "bench_serving_parity",
        *("--prompts", "sweeps/specs/demo_prompts.jsonl", "--count", "32", "--tokens", "256", "--pairs", "5"),
    )
    low, high = result["throughput_ratio_wanted"]
    assert low <= result["throughput_ratio_median"] <= high
    assert result["accept_length_equal_to_3_decimals"], result
