"""`specsweep measure` and the endpoint engine on a real SGLang server that somebody else started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_servers import launched, running
from server_specs import baseline, real_spec, speculative
from tiny_models import TinyPair

from actors.engines.endpoint import Endpoint, RunningServer
from results.failures import Failure
from sweeps.cli import main

pytestmark = pytest.mark.server

CONFIG = speculative(3, 4, 8)


def test_one_row_of_a_real_server(tiny_pair: TinyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(real_spec(tiny_pair, tmp_path), CONFIG) as somebody:
        options = ["--prompts", "8", "--concurrency", "2", "--max-new-tokens", "24", "--ignore-eos", "--json"]
        assert main(["measure", somebody.base_url, *options]) == 0
        row = json.loads(capsys.readouterr().out)
        ours = RunningServer(Endpoint(url=somebody.base_url), model_path=str(tiny_pair.target))
        seen = launched(ours.apply(CONFIG))
        assert isinstance(ours.apply(baseline()), Failure)
        ours.close()
        assert somebody.failure_now() is None
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
