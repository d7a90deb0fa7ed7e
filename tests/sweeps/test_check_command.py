from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_checkpoints import DRAFT, LLAMA, draft_tensors, write_checkpoint

from search_spaces.errors import InputError
from sweeps.cli import main
from sweeps.commands.check import parse_flags

SPARSE = [i * 4 - i for i in range(32000)]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("SGLANG_SIMULATE_ACC_LEN", raising=False)
    monkeypatch.delenv("SGLANG_IS_IN_CI", raising=False)
    target = write_checkpoint(tmp_path / "target", LLAMA)
    ids = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}
    draft = write_checkpoint(tmp_path / "draft", {**DRAFT, **ids}, draft_tensors(), SPARSE)
    return ["check", "--target", str(target), "--draft", str(draft)]


def test_json_and_exit_codes(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--set", "speculative-num-steps=1", "--set", "eagle_topk=1", "--set", "num_draft_tokens=8"]
    assert main([*pair, "--json", "--sglang-version", "0.5.23", "--tp", "2", *flags]) == 0
    content = json.loads(capsys.readouterr().out)
    assert set(content) == {"schema", "findings", "layout", "effective"}
    assert all(set(row) == {"id", "severity", "message", "evidence", "mend"} for row in content["findings"])
    assert content["layout"]["taps"] == [2, 16, 29]
    assert content["effective"]["num_draft_tokens"] == 2
    assert content["effective"]["tp_size"] == 2
    assert main([*pair, "--set", "speculative_eagle_topk=4", "--sglang-version", "0.5.23"]) == 1
    text = capsys.readouterr().out
    assert "give all three or none" in text
    assert "1 errors" in text


def test_bad_input_is_one_line(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*pair, "--sglang-version", "new"]) == 2
    assert main([*pair, "--set", "tp_size=2"]) == 2
    assert main(["check", "--target", "/nowhere/at/all", "--draft", pair[-1]]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert "/nowhere/at/all" in errors[2]


def test_simulated_acceptance_in_the_environment_is_an_error(
    pair: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3.24")
    assert main([*pair, "--sglang-version", "0.5.23"]) == 1
    assert "simulated acceptance is on" in capsys.readouterr().out


def test_flags() -> None:
    texts = ["--attention-backend=fa3", "page_size=64", "num_steps=null", "disable_cuda_graph=true"]
    assert parse_flags(texts) == {"attention_backend": "fa3", "page_size": 64, "disable_cuda_graph": True}
    override = parse_flags(['json_model_override_args={"eagle_config": {"x": [1]}}'])
    assert json.loads(str(override["json_model_override_args"])) == {"eagle_config": {"x": [1]}}
    for bad in ("a.b=1", "num_steps=0", "num_steps=two", "tp=2", "nothing"):
        with pytest.raises(InputError):
            parse_flags([bad])
