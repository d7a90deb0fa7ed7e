"""Questions to the engine's interpreter before any launch: is SGLang there, and what would it make of these arguments?

Both run `questions.py` in a short process under that interpreter, with the environment a server would get; nothing of
SGLang is imported here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.engines.command import words
from actors.engines.cpu_kernels import stand_in_paths
from actors.engines.environment import PASSED_ON
from actors.engines.server_spec import Device
from search_spaces.config import FlagValue, Triple
from search_spaces.errors import EnvironmentProblem

QUESTIONS = Path(__file__).with_name("questions.py")


@dataclass(frozen=True, kw_only=True)
class FoundEngine:
    """An interpreter that can serve. `cpu_stand_ins` are the packages to be replaced for a server on a CPU."""

    python: str
    version: str
    cpu_stand_ins: frozenset[str]

    def stand_ins(self, device: Device) -> frozenset[str]:
        """The packages to be replaced on this device."""
        return self.cpu_stand_ins if device == "cpu" else frozenset()


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What SGLang's own argument resolution makes of one server's arguments: `error`, or the resolved values.

    SGLang accepts some settings here that die later, at the first request: no error is not yet a promise.
    """

    error: str | None
    triple: Triple | None
    args: Mapping[str, Any]


def find_engine(python: str, timeout_s: float = 120.0) -> FoundEngine:
    """SGLang's version in this interpreter. EnvironmentProblem when there is none or the interpreter cannot run.

    Also says which packages a CPU server needs a stand-in for: those absent, and an `sgl_kernel` without CPU code.
    """
    answer = _ask(python, ["find"], {}, timeout_s)
    if answer.get("version") is None:
        raise EnvironmentProblem(
            f"engine.python: {python} has no SGLang (no module named sglang); install it there, "
            "or name the interpreter that has it"
        )
    return FoundEngine(python=python, version=str(answer["version"]), cpu_stand_ins=frozenset(answer["stand_ins"]))


def ask_engine(
    engine: FoundEngine,
    device: Device,
    settings: Sequence[Mapping[str, FlagValue]],
    timeout_s: float = 300.0,
    *,
    environment: Mapping[str, str] | None = None,
) -> tuple[Resolution, ...]:
    """SGLang's own resolution of each of these arguments (snake_case), in their order, in one process.

    `environment` is what the servers get beside what they inherit: by it, too, SGLang decides.
    Takes some 5 s of imports and then about 0.03 s a setting; no model is loaded and no port opened.
    EnvironmentProblem when SGLang cannot be imported or does not have this way of being asked.
    """
    variables = {**({"SGLANG_USE_CPU_ENGINE": "1"} if device == "cpu" else {}), **(environment or {})}
    path = [str(folder) for folder in stand_in_paths(engine.stand_ins(device))]
    if path:
        variables["PYTHONPATH"] = ":".join([*path, *filter(None, [variables.get("PYTHONPATH")])])
    question = json.dumps([words(args) for args in settings])
    answer = _ask(engine.python, ["resolve"], variables, timeout_s, question)
    if "error" in answer:
        raise EnvironmentProblem(f"engine.python: {engine.python} cannot resolve arguments: {answer['error']}")
    return tuple(_resolution(row) for row in answer["rows"])


def _resolution(row: Mapping[str, Any]) -> Resolution:
    if row["error"] is not None:
        return Resolution(error=row["error"], triple=None, args={})
    args = row["args"]
    numbers = {name: args.get(f"speculative_{name}") for name in ("num_steps", "eagle_topk", "num_draft_tokens")}
    speculates = args.get("speculative_algorithm") is not None and None not in numbers.values()
    return Resolution(error=None, triple=Triple(**numbers) if speculates else None, args=args)


def _ask(
    python: str, words: list[str], environment: Mapping[str, str], timeout_s: float, question: str = ""
) -> dict[str, Any]:
    inherited = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    try:
        answer = subprocess.run(
            [python, str(QUESTIONS), *words],
            input=question,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**inherited, **environment},
        )
    except subprocess.TimeoutExpired as problem:
        raise EnvironmentProblem(f"engine.python: {python} gave no answer within {timeout_s:.0f} s") from problem
    except OSError as problem:
        raise EnvironmentProblem(f"engine.python: {python} cannot be run: {problem.strerror}") from problem
    last = (answer.stdout.strip().splitlines() or [""])[-1]  # imports may have printed before
    try:
        content = json.loads(last)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        said = (answer.stderr.strip().splitlines() or ["no output"])[-1]
        raise EnvironmentProblem(f"engine.python: {python} did not answer (exit code {answer.returncode}): {said}")
    return content
