"""A small sweep on stand-in servers, and how tests run it from the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 500
SPEC = """\
study: small
target: models/target
draft: models/draft
engine:
  python: ./fake_python
  device: cpu
  sglang_version: 0.5.23
  ready_timeout_s: 60
  switching: off
cluster: {gpus: 2}
space:
  layout: [shipped, [0, 3, 7]]
  num_steps: [1, 3]
  eagle_topk: [1]
  num_draft_tokens: [8]
workload: {prompts: 8, concurrency: [2], max_new_tokens: 16, warmup_prompts: 2}
budget: {trials: 3, confirmations: 0}
"""


def environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    return kept | {"SPECSWEEP_HOME": str(home), "RAY_AUTH_MODE": "disabled", "MLFLOW_DISABLE_TELEMETRY": "true"}


def program(*argv: str) -> list[str]:
    return [sys.executable, "-m", "sweeps", *argv]


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
