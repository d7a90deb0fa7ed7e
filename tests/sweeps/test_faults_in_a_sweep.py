"""A sweep in which everything breaks once: each is a recorded failure with its kind and log, and the sweep goes on.

Real driver, Ray, guard and records; the servers are stand-ins, and SGLang itself among the long points.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.fake_interpreter import make_fake_python
from driver_process import Driver, is_busy, servers, wait_for_none
from job_cluster import wait_until
from tiny_models import TinyPair

from results.store import StudyFolder

DEMO_PAIR = Path(__file__).parents[2] / "sweeps" / "specs" / "demo_pair"
KILL_SERVER, KILL_GUARD, KILL_ACTOR, NEVER_READY, DIES, WELL = range(1, 7)
"""The number of draft steps says what happens to the trial."""
KILLS = (KILL_SERVER, KILL_GUARD, KILL_ACTOR)
SLOW = {"step_ms": 100, "grandchildren": True}
STAND_IN = {
    **dict.fromkeys(KILLS, SLOW),
    NEVER_READY: {"mode": "never_ready"},
    DIES: {"mode": "die_after", "after_requests": 1, "exit_code": 3, "grandchildren": True},
}


def stand_in(folder: Path, pair: TinyPair) -> dict[str, Any]:
    """A stand-in server that behaves as its number of steps says."""
    inner, outer = make_fake_python(folder), folder / "python"
    cases = "\n".join(
        f"*' --speculative-num-steps {steps} '*) export FAKE_SGLANG='{json.dumps(plan)}';;"
        for steps, plan in STAND_IN.items()
    )
    outer.write_text(f'#!/bin/sh\ncase " $* " in\n{cases}\nesac\nexec "{inner}" "$@"\n')
    outer.chmod(0o755)
    return {
        "target": str(pair.target),
        "draft": str(pair.draft),
        "engine": {"python": str(outer), "ready_timeout_s": 8.0},
        "steps": [*STAND_IN, WELL],
    }


def sglang(_: Path, __: TinyPair) -> dict[str, Any]:
    """SGLang itself, which is killed but never fails by itself."""
    return {
        "target": str(DEMO_PAIR / "target"),
        "draft": str(DEMO_PAIR / "draft"),
        "engine": {"args": {"context_length": 512, "max_total_tokens": 4096}},
        "steps": [*KILLS, WELL],
    }


@pytest.fixture(
    params=[
        pytest.param(stand_in, id="stand_in", marks=pytest.mark.timeout(300)),
        pytest.param(sglang, id="sglang", marks=[pytest.mark.server, pytest.mark.evidence, pytest.mark.timeout(1800)]),
    ]
)
def sweep(
    request: pytest.FixtureRequest, tmp_path: Path, tiny_pair: TinyPair, ray_address: str
) -> Iterator[tuple[Path, StudyFolder, list[int]]]:
    """The spec, its study's folder, and the numbers of steps it tries."""
    models = request.param(tmp_path, tiny_pair)
    steps, name = models.pop("steps"), f"faults{os.getpid()}"
    space = {"layout": ["default"], "num_steps": steps, "eagle_topk": [1], "num_draft_tokens": [2], "tp_size": [1]}
    spec = {
        **models,
        "study": name,
        "engine": {"device": "cpu", "stop_grace_s": 1.0, "switching": "off"} | models["engine"],
        "cluster": {"address": ray_address, "max_parallel": 1},
        "space": space,
        "workload": {"prompts": 8, "concurrency": [1], "max_new_tokens": 200, "warmup_prompts": 1},
        "objective": {"metric": "accept_length"},
        "search": {"sampler": "random"},
        "budget": {"confirmations": 0, "retries": 0},
        "tracking": {"enabled": False},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    yield path, StudyFolder(tmp_path / "home" / name), steps
    wait_for_none(name)


def test_whatever_breaks_is_recorded_and_the_sweep_goes_on(sweep: tuple[Path, StudyFolder, list[int]]) -> None:
    spec, folder, all_steps = sweep
    study = folder.path.name
    driver = Driver(spec, folder.path.parent)
    try:
        while (told := driver.until(("started", "result")))["event"] == "started":
            killed = kill_while_measuring(study, told["steps"]) if told["steps"] in KILLS else set()
            driver.until("finished", told["trial"])
            wait_until(lambda killed=killed: not killed & set(servers(study)))
        assert driver.end() == 0
    finally:
        driver.process.kill()
    records = {
        record.effective.triple.num_steps if record.effective.triple else 0: record for record in folder.records()
    }
    failed = {steps: record.failure for steps, record in records.items() if record.failure is not None}
    assert sorted(records) == [0, *all_steps]
    assert (told["reason"], told["done"], told["failed"]) == ("exhausted", 1 + len(all_steps), len(all_steps) - 1)
    assert sorted(failed) == sorted(set(all_steps) - {WELL})
    kinds = {steps: (failure.phase, failure.kind) for steps, failure in failed.items()}
    expected = {
        KILL_SERVER: ("measure", "crash"),
        KILL_GUARD: ("measure", "crash"),
        KILL_ACTOR: ("measure", "lost_actor"),
        NEVER_READY: ("ready", "timeout"),
        DIES: ("measure", "crash"),
    }
    assert kinds == {steps: expected[steps] for steps in failed}
    assert "SIGKILL" in failed[KILL_SERVER].message
    assert [steps for steps, failure in failed.items() if not failure.log_tail.strip()] == []
    assert not set(records[WELL].findings)
    assert folder.trial_ids() == tuple(sorted(record.trial_id for record in records.values()))


def kill_while_measuring(study: str, steps: int) -> set[int]:
    """Kill what the number of steps says; the processes that should be gone after that.

    A server is busy for the first time while it is warmed up, with one prompt of 32 tokens.
    """
    server, port = server_with(study, steps)
    wait_until(lambda: is_busy(port), every_s=0.1)
    time.sleep(3)
    wait_until(lambda: is_busy(port), every_s=0.1)
    begun = set(servers(study))
    victim = {KILL_SERVER: server, KILL_GUARD: parent_of(server), KILL_ACTOR: 0}[steps] or actor_process()
    os.kill(victim, signal.SIGKILL)
    return begun


def server_with(study: str, steps: int) -> tuple[int, int]:
    """The server below a guard that was started with this number of draft steps, and its port."""
    found: list[tuple[int, int]] = []

    def look() -> bool:
        for pid, port in servers(study).items():
            words = words_of(pid)
            guard = any(word.endswith("guard.py") for word in words)
            asked = words[words.index(STEPS) + 1] if STEPS in words else "0"
            if port and not guard and "sglang.launch_server" in words and asked == str(steps):
                found.append((pid, port))
        return bool(found)

    wait_until(look, every_s=0.1)
    return found[0]


STEPS = "--speculative-num-steps"


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def actor_process() -> int:
    """The GPU group's process, below this test session's own Ray."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and words_of(int(entry.name))[:1] and "ray::GpuGroup" in words_of(int(entry.name))[0]:
            pid = ancestor = int(entry.name)
            while ancestor > 1:
                if ancestor == os.getpid():
                    return pid
                ancestor = parent_of(ancestor)
    raise AssertionError("no actor runs")
