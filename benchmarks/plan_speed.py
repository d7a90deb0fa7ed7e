"""`specsweep plan` on 10,000 combinations beside `python -c "import optuna"`, interleaved, in processes of their own.

    python benchmarks/plan_speed.py [--repeats 10] [--out benchmarks/results/plan_speed.json]

Both are compared by the median of their processor seconds (user and system) and of their wall seconds; `plan` may take
at most three times as long. It must not import ray, torch, mlflow or optuna either: looked up in `sys.modules`.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.result_file import write_result

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 3.0
NOT_IMPORTED = ("ray", "torch", "mlflow", "optuna", "sglang")
SPEC = """\
study: plan-speed
target: {pair}/target
draft: {pair}/draft
space:
  layout: [shipped]
  num_steps: {{low: 1, high: 25}}
  eagle_topk: {{low: 1, high: 20}}
  num_draft_tokens: {{low: 2, high: 21}}
"""


@dataclass(frozen=True, kw_only=True)
class Took:
    """Seconds of one process."""

    cpu_s: float
    wall_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.yaml"
        spec.write_text(SPEC.format(pair=ROOT / "sweeps" / "specs" / "demo_pair"), encoding="utf-8")
        plan = [sys.executable, "-m", "sweeps", "plan", str(spec), "--json"]
        optuna = [sys.executable, "-c", "import optuna"]
        # once each beforehand: files are cached and compiled
        content = json.loads(run(plan))
        run(optuna)
        pairs = [(timed(plan), timed(optuna)) for _ in range(asked.repeats)]
        imported = imported_by(["plan", str(spec), "--json"])
    ours, theirs = (list(took) for took in zip(*pairs, strict=True))
    result = {
        "combinations": content["requested"],
        "distinct_servers": content["effective"],
        "repeats": asked.repeats,
        "plan": medians(ours),
        "import_optuna": medians(theirs),
        "ratio": {
            "cpu": round(medians(ours)["cpu_s"] / medians(theirs)["cpu_s"], 3),
            "wall": round(medians(ours)["wall_s"] / medians(theirs)["wall_s"], 3),
        },
        "limit": LIMIT,
        "imported_by_plan": imported,
    }
    print(json.dumps(result, indent=1))
    if asked.out is not None:
        command = f"python benchmarks/plan_speed.py --repeats {asked.repeats}"
        write_result(asked.out, command=command, content=result)
    return 0 if max(result["ratio"].values()) <= LIMIT and not imported else 1


def run(program: list[str]) -> str:
    return subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=120).stdout


def timed(program: list[str]) -> Took:
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run(program)
    wall_s, after = time.perf_counter() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s=wall_s)


def medians(times: list[Took]) -> dict[str, float]:
    return {
        "cpu_s": round(statistics.median(took.cpu_s for took in times), 3),
        "wall_s": round(statistics.median(took.wall_s for took in times), 3),
    }


def imported_by(argv: list[str]) -> list[str]:
    """Which of the heavy packages a command has imported when it ends."""
    code = (
        "import sys; from sweeps.cli import main; "
        f"main({argv!r}); print(sorted(set({NOT_IMPORTED!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    found: list[str] = json.loads(done.stderr.replace("'", '"'))
    return found


if __name__ == "__main__":
    sys.exit(main())
