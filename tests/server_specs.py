"""Specs of servers for tests: on the tiny pair with the real engine, or with the stand-in of `doubles/`."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from doubles.fake_interpreter import make_fake_package, make_fake_python
from tiny_models import TinyPair

from actors.engines.cpu_kernels import STAND_INS
from actors.engines.server_spec import ServerSpec
from search_spaces.checkpoints import read_draft, read_target
from search_spaces.config import EngineConfig, Taps, Triple

DEFAULT_TAPS = (2, 4, 5)


def real_spec(pair: TinyPair, work_dir: Path, **changes: Any) -> ServerSpec:
    """A spec for real servers on the CPU, started by fork."""
    values: dict[str, Any] = {
        "target": read_target(pair.target),
        "draft": read_draft(pair.draft),
        "sglang_version": "0.5.23",
        "device": "cpu",
        "work_dir": work_dir,
        "sweep_id": f"test-{uuid.uuid4().hex[:12]}",
        "slot": "0",
        "python": sys.executable,
        "stand_ins": frozenset(STAND_INS),
        "start_method": "fork",
        "ready_timeout_s": 180.0,
    }
    return ServerSpec(**values | changes)


def fake_spec(pair: TinyPair, work_dir: Path, plan: dict[str, Any] | None = None, **changes: Any) -> ServerSpec:
    """A spec whose interpreter is the stand-in server; `plan` is what `fake_sglang` takes."""
    work_dir.mkdir(parents=True, exist_ok=True)
    environment = {"FAKE_SGLANG": json.dumps(plan or {})} | changes.pop("environment", {})
    if changes.get("start_method") == "fork":
        environment = {"PYTHONPATH": str(make_fake_package(work_dir / "package"))} | environment
        changes.setdefault("python", sys.executable)
    values: dict[str, Any] = {
        "python": str(make_fake_python(work_dir)),
        "start_method": "spawn",
        "stand_ins": frozenset(),
        "ready_timeout_s": 10.0,
        "stop_grace_s": 0.5,
        "environment": environment,
    }
    return real_spec(pair, work_dir, **values | changes)


def speculative(steps: int, topk: int, tokens: int, *, layout: Taps = DEFAULT_TAPS, tp_size: int = 1) -> EngineConfig:
    triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    return EngineConfig(layout=layout, triple=triple, tp_size=tp_size)


def baseline(tp_size: int = 1) -> EngineConfig:
    return EngineConfig(layout=None, triple=None, tp_size=tp_size)
