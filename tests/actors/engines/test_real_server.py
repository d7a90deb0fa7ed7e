"""Real SGLang servers on the CPU: started, verified, asked, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live_servers import launched
from server_specs import baseline, real_spec, speculative
from tiny_models import TinyPair

from actors.engines.guard import mapped_shared_memory
from actors.engines.guarded_process import find_leftovers
from actors.engines.server_http import read_server_info
from actors.engines.sglang_server import SglangServer
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig

pytestmark = pytest.mark.server

PROMPTS = ["the quick brown fox", "once upon a time there was", "a little", "def main(args):"]
TOKENS = 24


def generate(base_url: str, prompt: str, tokens: int = TOKENS) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    body = json.dumps({"text": prompt, "sampling_params": sampling}).encode()
    request = urllib.request.Request(base_url + "/generate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        content: dict[str, Any] = json.load(answer)
    return content


def generate_all(base_url: str, tokens: int = TOKENS) -> list[dict[str, Any]]:
    """All prompts at once, so that batches are larger than one."""
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(lambda prompt: generate(base_url, prompt, tokens), PROMPTS))


def answers_as(port: int, model: Path) -> bool:
    """Whether our server still answers there; somebody else may have taken the port since."""
    try:
        return bool(read_server_info(f"http://127.0.0.1:{port}")["model_path"] == str(model))
    except OSError:
        return False


def test_plain_tree_and_two_workers_say_the_same_and_leave_nothing(tiny_pair: TinyPair, tmp_path: Path) -> None:
    """Baseline, topk > 1 at tp 1 and a layout with the embedding tap at tp 2: same tokens, true counters, no leak."""
    spec = real_spec(tiny_pair, tmp_path, args={"context_length": 512})
    engine = SglangServer(spec)
    try:
        configs = [baseline(), speculative(3, 4, 8), speculative(2, 2, 4, layout=(0, 3, 7), tp_size=2)]
        outputs, ports, shared_memory = [], [], set()
        for config in configs:
            observation = launched(engine.apply(config))
            answers = generate_all(engine.base_url)
            outputs.append([answer["output_ids"] for answer in answers])
            ports.append(observation.port)
            shared_memory |= mapped_shared_memory(find_leftovers(spec.owner))
            check_observation(observation, config)
            for answer in answers:
                check_counters(answer["meta_info"], config)
            assert engine.failure_now() is None
    finally:
        engine.close()
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]
    assert find_leftovers(spec.owner) == []
    assert all(not answers_as(port, tiny_pair.target) for port in ports)
    assert shared_memory  # SGLang leaves such files even after a clean stop
    assert not [path for path in shared_memory if Path(path).exists()]


def check_observation(observation: LaunchObservation, config: EngineConfig) -> None:
    args = observation.effective_args
    assert observation.stand_in_kernels
    assert observation.accelerator == "cpu"
    assert args["tp_size"] == config.tp_size
    assert args["max_running_requests"] == 48
    triple = config.triple
    wanted = (None,) * 3 if triple is None else (triple.num_steps, triple.eagle_topk, triple.num_draft_tokens)
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    assert tuple(args[name] for name in names) == wanted
    assert (args["decrypted_draft_config_file"] is not None) == (config.layout == (0, 3, 7))


def check_counters(meta: dict[str, Any], config: EngineConfig) -> None:
    assert meta["completion_tokens"] == TOKENS
    if config.triple is None:
        assert "spec_verify_ct" not in meta
        return
    histogram, steps = meta["spec_correct_drafts_histogram"], meta["spec_verify_ct"]
    assert sum(histogram) == steps
    assert sum(i * count for i, count in enumerate(histogram)) == meta["spec_num_correct_drafts"]
    assert meta["spec_num_proposed_drafts"] == steps * (config.triple.num_draft_tokens - 1)
    assert 1 <= TOKENS / steps <= config.triple.ceiling + 1


def test_simulated_acceptance_is_what_the_counters_show(tiny_pair: TinyPair, tmp_path: Path) -> None:
    """SGLang's own simulation as the ground truth: steps accept 2 or 3 drafts so that the mean comes out."""
    asked = {"environment": {"SGLANG_SIMULATE_ACC_LEN": "3.24"}, "allow_simulated": True}
    spec = real_spec(tiny_pair, tmp_path, args={"context_length": 512}, **asked)
    engine = SglangServer(spec)
    try:
        observation = launched(engine.apply(speculative(5, 1, 6)))
        answers = [answer["meta_info"] for answer in generate_all(engine.base_url, tokens=100)]
    finally:
        engine.close()
    drafts = sum(meta["spec_num_correct_drafts"] for meta in answers)
    steps = sum(meta["spec_verify_ct"] for meta in answers)
    assert 1 + drafts / steps == pytest.approx(3.24, abs=0.05)
    assert any("acceptance is simulated" in finding for finding in observation.findings)


def test_a_setting_that_sglang_accepts_and_dies_of(tiny_pair: TinyPair, tmp_path: Path) -> None:
    """(1,4,8) wants 7 candidates from a pool of 4: the server starts, and dies of the first request."""
    spec = real_spec(tiny_pair, tmp_path, args={"context_length": 512})
    engine = SglangServer(spec)
    try:
        launched(engine.apply(speculative(1, 4, 8)))
        with pytest.raises(OSError):  # noqa: PT011 - whichever kind of broken connection
            generate(engine.base_url, PROMPTS[0])
        deadline = time.monotonic() + 20
        while (failure := engine.failure_now()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert isinstance(failure, Failure)
        assert (failure.phase, failure.kind) == ("measure", "bad_config")
        assert failure.message == "RuntimeError: selected index k out of range"
        assert "organize_draft_results" in failure.log_tail
    finally:
        engine.close()
    assert find_leftovers(spec.owner) == []


@pytest.mark.evidence
def test_a_killed_guard_leaves_no_worker_behind(tiny_pair: TinyPair, tmp_path: Path) -> None:
    spec = real_spec(tiny_pair, tmp_path, args={"context_length": 512})
    engine = SglangServer(spec)
    try:
        launched(engine.apply(baseline()))
        assert engine._running is not None
        shared_memory = mapped_shared_memory(find_leftovers(spec.owner))
        os.kill(engine._running.process.guard_pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while engine.failure_now() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        engine.close()
    assert find_leftovers(spec.owner) == []
    assert not [path for path in shared_memory if Path(path).exists()]
