from __future__ import annotations

from typing import Any

import pytest
from server_specs import baseline, speculative

from actors.engines.effective import is_another_server, log_findings, read_triple, resolved_args, verify
from results.server_limits import request_limit
from search_spaces.config import EngineConfig, FlagValue, Triple

ASKED: dict[str, FlagValue] = {
    "tp_size": 1,
    "port": 20100,
    "nccl_port": 20161,
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 4,
    "speculative_num_draft_tokens": 8,
    "max_running_requests": 48,
    "dtype": "float32",
}


def info(**changes: Any) -> dict[str, Any]:
    return {**ASKED, "internal_states": [{"effective_max_running_requests_per_dp": 48}], **changes}


def test_a_server_that_runs_what_was_asked_for() -> None:
    seen = verify(info(), speculative(3, 4, 8), ASKED)
    assert (seen.mismatch, seen.findings) == (None, ())


@pytest.mark.parametrize(
    ("runs", "config", "said"),
    [
        (
            info(speculative_num_draft_tokens=4),
            speculative(3, 4, 8),
            "num_draft_tokens) = (3,4,4)",
        ),
        (info(speculative_algorithm=None), speculative(3, 4, 8), "the server runs no speculation"),
        (info(), baseline(), "asked for no speculation"),
        (info(tp_size=2), speculative(3, 4, 8), "tp_size: asked for 1, the server runs 2"),
        (info(speculative_num_steps=None), speculative(3, 4, 8), "without naming its triple"),
    ],
)
def test_another_server_than_asked_for_is_a_mismatch(runs: dict[str, Any], config: EngineConfig, said: str) -> None:
    mismatch = verify(runs, config, ASKED).mismatch
    assert mismatch is not None
    assert said in mismatch


def test_lesser_differences_are_findings() -> None:
    seen = verify(info(dtype="bfloat16", max_running_requests=16), speculative(3, 4, 8), ASKED)
    assert seen.mismatch is None
    assert seen.findings == (
        "max_running_requests: asked for 48, the server runs 16",
        "dtype: asked for float32, the server runs bfloat16",
    )


def test_a_cap_by_the_memory_pools_is_a_finding() -> None:
    states = [{"effective_max_running_requests_per_dp": 16}, {"effective_max_running_requests_per_dp": 12}]
    seen = verify(info(internal_states=states), speculative(3, 4, 8), ASKED)
    assert seen.findings == ("max_running_requests: asked for 48, the memory pools allow 12",)


def test_the_triple_is_read_from_the_resolved_values() -> None:
    assert read_triple(info()) == Triple(num_steps=3, eagle_topk=4, num_draft_tokens=8)
    assert read_triple({"speculative_algorithm": None, "speculative_num_steps": 3}) is None


def test_sglangs_own_words_on_changes_become_findings_once() -> None:
    log = """\
[2026-11-29 12:00:01] WARNING speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when \
speculative_eagle_topk == 1
[2026-11-29 12:00:01] speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when \
speculative_eagle_topk == 1
[2026-11-29 12:00:01] Max running requests is reset to 48 for speculative decoding.
[2026-11-29 12:00:02] Load weight end. elapsed=0.08 s
[2026-11-29 12:00:02] Using default HuggingFace chat template
"""
    adjusted = "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
    assert log_findings(log) == (
        f"SGLang: {adjusted}",
        "SGLang: Max running requests is reset to 48 for speculative decoding.",
    )


def test_a_stranger_on_our_port_is_noticed_by_its_ports() -> None:
    assert not is_another_server(info(), 20100, 20161)
    assert is_another_server(info(nccl_port=None), 20100, 20161)
    assert is_another_server(info(port=30000), 20100, 20161)


def test_secrets_and_live_state_stay_out_of_records() -> None:
    kept = resolved_args(info(api_key="sk-1", admin_api_key=None, launch_command="serve --api-key sk-1 --tp-size 2"))
    assert "internal_states" not in kept
    assert request_limit(kept) == 48
    states = [{"effective_max_running_requests_per_dp": 16}, {"effective_max_running_requests_per_dp": 12}]
    assert request_limit(resolved_args(info(internal_states=states, max_running_requests=64))) == 28
    assert request_limit(resolved_args({"max_running_requests": 64})) == 64
    assert (kept["api_key"], kept["admin_api_key"]) == ("<redacted>", None)
    assert kept["launch_command"] == "serve --api-key <redacted> --tp-size 2"
