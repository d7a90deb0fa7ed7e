"""`plan` is for trying things out: it must stay as quick as importing one library, and import no heavy one."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from spec_files import write_spec

ROOT = Path(__file__).parents[2]
HEAVY = (
    "ray",
    "torch",
    "mlflow",
    "optuna",
    "sglang",
    "transformers",
    "pandas",
    "pyarrow",
    "matplotlib",
    "numpy",
    "aiohttp",
)
BIG = """\
target: models/target
draft: models/draft
space:
  num_steps: {low: 1, high: 25}
  eagle_topk: {low: 1, high: 20}
  num_draft_tokens: {low: 2, high: 21}
"""


def cpu_s(program: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_ten_thousand_settings_within_three_imports_of_optuna(tmp_path: Path) -> None:
    path = str(write_spec(tmp_path, BIG))
    plan = [sys.executable, "-m", "sweeps", "plan", path, "--json"]
    # processor time, alternating, the best of each: the machine may be busy with something else
    pairs = [(cpu_s(plan), cpu_s([sys.executable, "-c", "import optuna"])) for _ in range(3)]
    ours, theirs = (min(times) for times in zip(*pairs, strict=True))
    assert ours <= 3 * theirs, f"plan {ours:.2f} s, import optuna {theirs:.2f} s"


def test_light_commands_import_nothing_heavy(tmp_path: Path) -> None:
    path = str(write_spec(tmp_path))
    models = ["--target", str(tmp_path / "models/target"), "--draft", str(tmp_path / "models/draft")]
    for argv in (["plan", path, "--json"], ["check", *models], ["schema"], ["--help"]):
        code = f"import sys; from sweeps.cli import main; main({argv!r}); print('#', set({HEAVY!r}) & set(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
        )
        assert done.stdout.splitlines()[-1] == "# set()", argv
