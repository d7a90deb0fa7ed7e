"""`specsweep measure` and the endpoint engine on a real SGLang server that somebody else started."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import pytest
from tiny_models import TinyPair

from actors.engines.cpu_kernels import STAND_INS
from actors.engines.endpoint import Endpoint, RunningServer
from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.checkpoints import read_draft, read_target
from search_spaces.config import EngineConfig, Triple
from sweeps.cli import main

pytestmark = pytest.mark.server

CONFIG = EngineConfig(layout=(2, 4, 5), triple=Triple(num_steps=3, eagle_topk=4, num_draft_tokens=8), tp_size=1)


def test_one_row_of_a_real_server(tiny_pair: TinyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    somebody = SglangServer(
        ServerSpec(
            target=read_target(tiny_pair.target),
            draft=read_draft(tiny_pair.draft),
            sglang_version="0.5.23",
            device="cpu",
            work_dir=tmp_path,
            sweep_id=f"test-{uuid.uuid4().hex[:12]}",
            slot="0",
            python=sys.executable,
            stand_ins=frozenset(STAND_INS),
            start_method="fork",
            ready_timeout_s=180.0,
        )
    )
    try:
        launch = somebody.apply(CONFIG)
        assert isinstance(launch, LaunchObservation), launch
        options = ["--prompts", "8", "--concurrency", "2", "--max-new-tokens", "24", "--ignore-eos", "--json"]
        assert main(["measure", somebody.base_url, *options]) == 0
        row = json.loads(capsys.readouterr().out)
        ours = RunningServer(Endpoint(url=somebody.base_url), model_path=str(tiny_pair.target))
        seen = ours.apply(CONFIG)
        assert isinstance(seen, LaunchObservation), seen
        assert isinstance(ours.apply(EngineConfig(layout=None, triple=None, tp_size=1)), Failure)
        ours.close()
        assert somebody.failure_now() is None
    finally:
        somebody.close()
    numbers = tuple(row["server"][name] for name in ("num_steps", "eagle_topk", "num_draft_tokens", "tp_size"))
    assert numbers == (3, 4, 8, 1)
    assert row["server"]["sglang_version"] == "0.5.23"
    assert (row["requests"], row["requests_failed"], row["completion_tokens"]) == (8, 0, 8 * 24)
    assert row["accept_length"]["value"] == pytest.approx(8 * 24 / row["verify_steps"])
    assert row["counted_accept_length"] == pytest.approx(row["accept_length"]["value"], abs=5e-4)
    assert 1 <= row["accept_length"]["value"] <= row["ceiling"] == 4
    assert sum(row["histogram"]) == row["verify_steps"]
    assert row["output_throughput"]["value"] > 0
    assert row["ttft_ms_p50"] > 0
    assert "--speculative-num-steps" in seen.command
    assert not seen.weights_loaded
