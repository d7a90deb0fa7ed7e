"""Whole sweeps of the demo pair on real servers, by the command line, in a home of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from actors.demo_models.corpus import prompts

ROOT = Path(__file__).parents[2]
PAIR = ROOT / "sweeps" / "specs" / "demo_pair"

HEAD = """\
study: {study}
target: {pair}/target
draft: {pair}/draft
engine:
  device: cpu
  start_method: fork
  switching: {switching}
  ready_timeout_s: 240
  args: {{context_length: 512, max_total_tokens: 8192, max_running_requests: 4}}
cluster: {{gpus: 1, max_parallel: 1}}
tracking: {{enabled: false}}
"""
"""One server at a time; the spec's remaining sections are the test's."""


def run_sweep(
    folder: Path, study: str, sections: str, *, prompt_count: int, timeout_s: float, switching: str = "off"
) -> dict[str, Any]:
    """Run the sweep to its end and return its report. `{prompts}` in `sections` is a file of held-out prompts."""
    file, spec = folder / "prompts.jsonl", folder / f"{study}.yaml"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in prompts(prompt_count)))
    spec.write_text(HEAD.format(study=study, pair=PAIR, switching=switching) + sections.format(prompts=file))
    specsweep(folder, "run", str(spec), timeout_s=timeout_s)
    report: dict[str, Any] = json.loads(specsweep(folder, "report", study, "--json", "--no-plots", timeout_s=120))
    return report


def specsweep(folder: Path, *argv: str, timeout_s: float) -> str:
    """Run one command with the home `folder`/home to its end; returns what it printed. It must end well."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=kept | {"SPECSWEEP_HOME": str(folder / "home"), "RAY_AUTH_MODE": "disabled"},
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
