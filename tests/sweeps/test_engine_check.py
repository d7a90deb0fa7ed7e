"""Our rules against SGLang's own resolution: the engine has the last word, unless it cannot be asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from doubles.fake_interpreter import make_fake_python
from tiny_models import TinyPair
from trial_builders import config

from actors.engines.preflight import FoundEngine, Resolution
from actors.engines.server_spec import ServerSpec
from search_spaces.checkpoints import read_draft, read_target
from search_spaces.config import EngineConfig, Triple
from sweeps.engine_check import objection, refusals


@pytest.fixture
def server(tiny_pair: TinyPair, tmp_path: Path) -> ServerSpec:
    return ServerSpec(
        target=read_target(str(tiny_pair.target)),
        draft=read_draft(str(tiny_pair.draft)),
        sglang_version="0.5.23",
        device="cpu",
        work_dir=tmp_path,
        sweep_id="s",
        slot="group0",
    )


def test_what_an_engine_may_object_to() -> None:
    triple = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)
    assert objection(config(1), Resolution(error=None, triple=triple, args={})) is None
    assert objection(config(3), Resolution(error=None, triple=triple, args={})) == "SGLang makes (1,1,2) of (3,1,4)"
    assert objection(config(3), Resolution(error=None, triple=None, args={})) == (
        "SGLang makes no speculation of (3,1,4)"
    )
    refused = Resolution(error="trtllm_mha only\nsupports topk = 1", triple=None, args={})
    assert objection(config(3), refused) == "SGLang refuses its arguments: trtllm_mha only supports topk = 1"


def test_only_what_the_engine_changes_is_refused(server: ServerSpec, tmp_path: Path) -> None:
    engine = FoundEngine(python=str(make_fake_python(tmp_path)), version="0.5.23", cpu_stand_ins=frozenset())
    # the rules would never let this one through: at topk 1 the engine sets the tokens
    wrong = EngineConfig(layout=(0, 3, 7), triple=Triple(num_steps=1, eagle_topk=1, num_draft_tokens=8), tp_size=1)
    found = refusals(engine, server, [config(3), wrong, config(2, 4, 8)])
    assert found == {wrong: "SGLang makes (1,1,2) of (1,1,8)"}


def test_an_engine_that_cannot_be_asked_refuses_nothing(server: ServerSpec, tmp_path: Path) -> None:
    script = tmp_path / "old_python"
    script.write_text(f'#!{sys.executable}\nprint(\'{{"error": "no such function"}}\')\n')
    script.chmod(0o755)
    engine = FoundEngine(python=str(script), version="0.5.1", cpu_stand_ins=frozenset())
    assert refusals(engine, server, [config(3)]) == {}
