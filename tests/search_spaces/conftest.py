"""Facts made by hand, and what the installed SGLang itself says (asked once, in one process)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from rule_facts import ARGVS
from tiny_models import TinyPair

from actors.engines.cpu_kernels import STAND_INS, stand_in_paths

REPOSITORY = Path(__file__).parents[2]
MAX_LAYERS = 8

# a busy machine is no fault of the code under test
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


@pytest.fixture(scope="session")
def sglang_says(tiny_pair: TinyPair) -> dict[str, Any]:
    """`version`, `classes`, `maps`, `unread` and `resolved` (by name of `ARGVS`) as sglang_reader.py prints them."""
    if importlib.util.find_spec("sglang") is None:
        pytest.skip("SGLang is not installed in this interpreter, so its own rules cannot be asked")
    missing = frozenset(name for name in STAND_INS if name == "sgl_kernel" or importlib.util.find_spec(name) is None)
    fixed = ["--model-path", str(tiny_pair.target), "--speculative-draft-model-path", str(tiny_pair.draft)]
    argvs = {name: [*fixed, *argv] for name, argv in ARGVS.items()}
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(path) for path in stand_in_paths(missing)),
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "sglang_reader.py")],
        input=json.dumps({"layers": MAX_LAYERS, "argvs": list(argvs.values())}),
        capture_output=True,
        text=True,
        env=environment,
        cwd=REPOSITORY,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["resolved"] = dict(zip(argvs, answer["resolved"], strict=True))
    return answer
