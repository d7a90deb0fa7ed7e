"""Static findings about flags, TP sizes and environment variables, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest
from pair_checks import IDS, SPARSE, check, finding, ids, with_ids
from small_checkpoints import DRAFT, LLAMA, draft_tensors

from search_spaces.errors import InputError
from search_spaces.findings import CheckReport


def test_serving_flags(tmp_path: Path) -> None:
    draft = with_ids(DRAFT, 1, 15, 28)

    def one(name: str, **flags: bool | int | str) -> CheckReport:
        return check(tmp_path / name, LLAMA, draft, draft_tensors(), SPARSE, flags=flags)

    def triple(s: int, k: int, n: int) -> dict[str, int]:
        return {"speculative_num_steps": s, "speculative_eagle_topk": k, "speculative_num_draft_tokens": n}

    adjusted = one("adjusted", **triple(1, 1, 8))
    assert adjusted.to_json()["effective"]["num_draft_tokens"] == 2
    assert adjusted.to_json()["effective"]["ceiling"] == 2
    assert "(1,1,8) runs as (1,1,2)" in finding(adjusted, "topk1-tokens").message
    pool = one("pool", **triple(1, 4, 8))
    assert "need n-1=7 > pool 4" in finding(pool, "tree-pool").message
    assert pool.effective is None
    assert pool.to_json()["effective"] is None
    assert "give all three or none" in finding(one("part", speculative_eagle_topk=4), "all-or-none").message
    assert ids(one("mha", attention_backend="trtllm_mha", **triple(3, 4, 8))) == {"backend-topk"}
    mla = one("mla", attention_backend="trtllm_mla", page_size=64, **triple(3, 4, 8))
    assert ids(mla) == {"page-size-topk"}
    assert not ids(one("fa3", attention_backend="fa3", page_size=64, **triple(3, 4, 8)))
    assert "last stage" in finding(one("pp", pp_size=2), "pipeline-parallel").message
    assert "algorithm" in ids(one("eagle", speculative_algorithm="EAGLE"))
    assert "48" in finding(one("cap"), "running-requests-cap").message
    assert "running-requests-cap" not in ids(one("set", max_running_requests=256), "info")


def test_heads_must_divide_over_tp(tmp_path: Path) -> None:
    target = {**LLAMA, "num_attention_heads": 32, "num_key_value_heads": 8}
    assert not ids(check(tmp_path / "a", target, DRAFT, tp_size=16))
    assert "tp-divides-heads" in ids(check(tmp_path / "b", target, DRAFT, tp_size=3))


@pytest.mark.parametrize(
    ("variable", "value", "id"),
    [
        ("SGLANG_SIMULATE_ACC_LEN", "3.24", "simulated-acceptance"),
        ("SGLANG_IS_IN_CI", "true", "ci-mode"),
        ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "1", "simulated-experts"),
    ],
)
def test_variables_that_falsify(tmp_path: Path, variable: str, value: str, id: str) -> None:
    report = check(tmp_path / "on", LLAMA, DRAFT, environment={variable: value})
    assert id in ids(report)
    assert f"{variable}={value}" in finding(report, id).evidence
    for off in ("", "0", "-1", "false"):
        assert id not in ids(check(tmp_path / f"off{off}", LLAMA, DRAFT, environment={variable: off}))


def test_flags_that_replace_the_drafts_config(tmp_path: Path) -> None:
    override = '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}'
    report = check(tmp_path, LLAMA, DRAFT, flags={"json_model_override_args": override})
    assert (report.layout_taps, report.layout_source) == ((2, 16, 29), "json_model_override_args")
    with pytest.raises(InputError, match="json_model_override_args"):
        check(tmp_path, LLAMA, DRAFT, flags={"json_model_override_args": "{"})
    (tmp_path / "other.json").write_text('{"hidden_size": 4096, "eagle_config": {"' + IDS + '": [-1, 2, 30]}}')
    report = check(tmp_path, LLAMA, DRAFT, flags={"decrypted_draft_config_file": str(tmp_path / "other.json")})
    assert (report.layout_taps, report.layout_source) == ((0, 3, 31), "decrypted_draft_config_file")
