"""The demo pair trained again by the shipped command, against the pair that is committed; offline and on real servers.

Training is deterministic: every stage has its own seed and one thread. So the weights are those that are committed to
the bit wherever torch and the processor are what they were at the last run on record, and anywhere else the pair is as
good. Writes `benchmarks/results/retraining.json`; about four minutes.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from live_servers import DEFAULT, TRAINED, Took, ask_all, config, demo_spec, demo_workload, running

from actors.demo_models.card import CardRow, read_rows
from benchmarks.machine import machine
from benchmarks.result_file import write_result

pytestmark = [pytest.mark.server, pytest.mark.evidence, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "sweeps" / "specs" / "demo_pair"
RESULTS = ROOT / "benchmarks" / "results" / "retraining.json"
WEIGHTS = ("target/model.safetensors", "draft/model.safetensors")
FILES = (*WEIGHTS, "target/config.json", "target/tokenizer.json", "draft/config.json", "training.jsonl")
LEAST_ACCEPT_LENGTH, LARGEST_SHARE = 2.5, 0.7
TOLERANCE = 0.1
"""How far, relative to the committed pair, the accept length may be elsewhere."""


def test_the_shipped_recipe_makes_the_committed_pair_again(tmp_path: Path) -> None:
    pair = tmp_path / "pair"
    seconds, cpu_seconds = train(pair)
    offline = lengths(read_rows((pair / "MODEL_CARD.md").read_text(encoding="utf-8")))
    committed = {
        how: lengths([row for row in read_rows((COMMITTED / "MODEL_CARD.md").read_text()) if how in row.how])
        for how in ("torch", "SGLang")
    }
    served = {
        name: serve(pair, layout, tmp_path / name) for name, layout in (("trained", TRAINED), ("default", DEFAULT))
    }
    equal = {name: digest(pair / name) == digest(COMMITTED / name) for name in FILES}
    expected_equal = was_equal_here()
    write_result(
        RESULTS,
        command="specsweep demo-models DIR",
        content={
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_seconds, 1),
            "equal_to_the_committed": equal,
            "accept_length": {"offline": offline, "sglang": served, "committed": committed},
            "default_over_trained": {"offline": share(offline), "sglang": share(served)},
            "limits": {"trained_at_least": LEAST_ACCEPT_LENGTH, "default_over_trained_at_most": LARGEST_SHARE},
        },
    )
    for measured in (offline, served):
        assert measured["trained"] >= LEAST_ACCEPT_LENGTH
        assert share(measured) <= LARGEST_SHARE
    assert served == pytest.approx(offline, rel=0.01)
    if expected_equal:
        assert all(equal.values())
    if all(equal[name] for name in WEIGHTS):
        assert offline == committed["torch"]
    for measured, before in ((offline, committed["torch"]), (served, committed["SGLang"])):
        assert measured["trained"] == pytest.approx(before["trained"], rel=TOLERANCE)


def train(folder: Path) -> tuple[float, float]:
    """Wall and processor seconds of the command."""
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-m", "sweeps", "demo-models", str(folder)], cwd=ROOT, check=True, timeout=1200)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - started_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def serve(pair: Path, layout: tuple[int, ...], work_dir: Path) -> float:
    """The accept length at (5,1,6) on a real server, on the prompts and tokens of the model card."""
    with running(demo_spec(work_dir, pair), config(layout, (5, 1, 6))) as server:
        answers = ask_all(server.base_url, demo_workload(prompts=20, tokens=128))
    return round(accept_length(list(answers.values())), 3)


def accept_length(answers: list[Took]) -> float:
    """Generated tokens per verify step, as everywhere: what the last step accepts beyond the limit is not counted."""
    return sum(len(answer.output_ids) for answer in answers) / sum(answer.verify_steps for answer in answers)


def lengths(rows: Iterable[CardRow]) -> dict[str, float]:
    return {row.layout: row.accept_length for row in rows}


def share(measured: dict[str, float]) -> float:
    return round(measured["default"] / measured["trained"], 3)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def was_equal_here() -> bool:
    """Whether the last run on record had this processor and this torch, and made the committed bytes."""
    try:
        last = json.loads(RESULTS.read_text(encoding="utf-8"))
    except OSError:
        return False
    there, here = last["machine"], machine("torch")
    same = there["cpu"] == here["cpu"] and there["versions"]["torch"] == here["versions"]["torch"]  # type: ignore[index]
    return same and all(last["equal_to_the_committed"].values())
