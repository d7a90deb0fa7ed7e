from __future__ import annotations

import sys
from pathlib import Path

import pytest
from doubles.fake_interpreter import make_fake_python
from tiny_models import TinyPair

from actors.engines.cpu_kernels import STAND_INS
from actors.engines.preflight import ask_engine, find_engine
from search_spaces.config import FlagValue, Triple
from search_spaces.errors import EnvironmentProblem

SPECULATIVE: dict[str, FlagValue] = {
    "device": "cpu",
    "prefill_attention_backend": "intel_amx",
    "decode_attention_backend": "intel_amx",
    "speculative_algorithm": "EAGLE3",
}


def triple(steps: int, topk: int, tokens: int) -> Triple:
    return Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)


def numbers(steps: int, topk: int, tokens: int) -> dict[str, FlagValue]:
    return {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }


def interpreter(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(script)
    path.chmod(0o755)
    return str(path)


def test_the_installed_engine_is_found_with_what_it_lacks() -> None:
    found = find_engine(sys.executable)
    assert found.version.startswith("0.5.")
    assert found.stand_ins("cpu") <= set(STAND_INS)
    assert found.stand_ins("cuda") == frozenset()


def test_an_interpreter_without_sglang_is_a_problem_of_the_environment(tmp_path: Path) -> None:
    bare = interpreter(tmp_path, f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    with pytest.raises(EnvironmentProblem, match=r"^engine\.python: .* has no SGLang"):
        find_engine(bare)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho no such library >&2\nexit 3\n", r"did not answer \(exit code 3\): no such library"),
        ("#!/bin/sh\nsleep 60\n", "no answer within 1 s"),
        ("#!/nowhere\n", "cannot be run: No such file"),
    ],
)
def test_a_broken_interpreter_is_one_line(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=said) as problem:
        find_engine(interpreter(tmp_path, script), timeout_s=1)
    assert "\n" not in str(problem.value)


def test_a_missing_interpreter_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot be run: No such file"):
        find_engine(str(tmp_path / "python"))


def test_settings_are_resolved_in_their_order(tmp_path: Path) -> None:
    found = find_engine(str(make_fake_python(tmp_path)))
    asked = [SPECULATIVE | numbers(1, 1, 8), SPECULATIVE | numbers(3, 4, 8), SPECULATIVE, {"device": "cpu"}]
    answers = ask_engine(found, "cpu", asked)
    assert [answer.triple for answer in answers] == [triple(1, 1, 2), triple(3, 4, 8), triple(5, 4, 8), None]


@pytest.mark.server
def test_sglangs_own_resolution(tiny_pair: TinyPair) -> None:
    base = SPECULATIVE | {
        "model_path": str(tiny_pair.target),
        "speculative_draft_model_path": str(tiny_pair.draft),
    }
    asked: list[dict[str, FlagValue]] = [
        base | numbers(1, 1, 8),
        base,
        base | {"speculative_num_steps": 3},
        base | {"nonsense": 1},
        {"device": "cpu", "model_path": str(tiny_pair.target)},
    ]
    answers = ask_engine(find_engine(sys.executable), "cpu", asked)
    assert [answer.triple for answer in answers] == [triple(1, 1, 2), triple(5, 4, 8), None, None, None]
    assert answers[0].args["max_running_requests"] == 48
    assert answers[2].error is not None
    assert answers[3].error is not None
    assert "unrecognized arguments: --nonsense" in answers[3].error
    assert answers[4].error is None
