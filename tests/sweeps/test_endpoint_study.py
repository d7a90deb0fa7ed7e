"""`engine.kind: endpoint`: a study of a server that runs already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doubles.timed_answers import TimedPlan
from doubles.timed_server import TimedServer
from spec_files import write_spec

from actors.engines.endpoint import Endpoint
from search_spaces.errors import InputError
from sweeps.claiming import claim_study, save_spec
from sweeps.cli import main
from sweeps.endpoint_study import adopted
from sweeps.spec import load_spec

SPEC = """\
target: models/target
draft: models/draft
engine: {kind: endpoint, url: URL}
space: {}
workload: {prompts: 20, concurrency: [2, 4], max_new_tokens: 24, warmup_prompts: 2}
tracking: {enabled: false}
"""
PLAN = TimedPlan(ttft_s=0.005, step_s=0.002, acceptance=(0.8, 0.6, 0.4), num_draft_tokens=4)
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECSWEEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def refused(capsys: Capture, argv: list[str], code: int) -> str:
    assert main(argv) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_the_running_server_is_the_one_trial_and_is_left_alone(
    tmp_path: Path, capsys: Capture, ray_address: str
) -> None:
    with TimedServer(PLAN) as server:
        path = str(write_spec(tmp_path, SPEC.replace("URL", server.url)))
        assert main(["run", path, "--json", "--set", f"cluster.address={ray_address}"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert not server.dead.is_set()
        sent = len(server.seen.requests)
        assert main(["status", "case", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["left"] == 0
        for again in (["run", path, "--set", f"cluster.address={ray_address}"], ["resume", "case"]):
            assert main([*again, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["reason"] == "exhausted"
        assert len(server.seen.requests) == sent
    assert report["reason"] == "exhausted"
    assert report["baselines"] == []
    (row,) = report["settings"]
    assert (row["num_steps"], row["eagle_topk"], row["num_draft_tokens"], row["tp_size"]) == (3, 1, 4, 1)
    assert row["launches"] == 1
    assert 1.5 < row["accept_length"]["value"] <= 4
    assert [load["concurrency"] for load in row["loads"]] == [2, 4]
    assert "the server serves models/double" in " ".join(report["findings"])


def test_a_study_keeps_the_setting_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the spec left the TP size open and the server has another one than the default."""
    info = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "tp_size": 2,
    }
    monkeypatch.setattr(Endpoint, "server_info", lambda self: info)
    spec = adopted(load_spec(write_spec(tmp_path, SPEC.replace("URL", "http://127.0.0.1:1"))))
    place = claim_study(spec, tmp_path / "home")
    save_spec(place, spec)
    there = place.read_spec()
    assert (there.space.num_steps, there.space.tp_size) == ((3,), (2,))
    assert adopted(there) == spec == there
    info["tp_size"] = 4
    with pytest.raises(InputError, match=r"space\.tp_size: 2, but the running server has 4"):
        adopted(there)


def test_the_objective_may_be_read_at_a_request_rate(tmp_path: Path, capsys: Capture, ray_address: str) -> None:
    at_rate = "workload={prompts: 12, concurrency: [2], request_rate: [50, 100.5], max_new_tokens: 8}"
    objective = "objective={metric: ttft_ms_p50, request_rate: 100.5}"
    argv = ["--set", f"cluster.address={ray_address}", "--set", at_rate, "--set", objective]
    with TimedServer(PLAN) as server:
        path = str(write_spec(tmp_path, SPEC.replace("URL", server.url)))
        assert main(["run", path, *argv]) == 0
        said = capsys.readouterr().out
        sent = len(server.seen.requests)
        # the same spec goes on where it ended: with nothing
        assert main(["run", path, "--json", *argv]) == 0
        report = json.loads(capsys.readouterr().out)
        assert len(server.seen.requests) == sent
        # where another load ranks, it is another study
        other = [*argv, "--set", "objective.request_rate=50"]
        assert "another objective.request_rate: 100.5 there, 50.0 here" in refused(capsys, ["run", path, *other], 2)
    assert "median time to first token (ms)" in said
    assert " at 100.5 requests/s" in said
    assert (report["objective"]["concurrency"], report["objective"]["request_rate"]) == (None, 100.5)
    (row,) = report["settings"]
    (cell,) = [cell for cell in row["cells"] if cell["request_rate"] == 100.5]
    assert row["objective"]["value"] == cell["ttft_ms_p50"]


def test_a_space_that_it_does_not_run_is_refused_and_leaves_nothing(
    tmp_path: Path, capsys: Capture, home: Path
) -> None:
    with TimedServer(PLAN) as server:
        path = str(write_spec(tmp_path, SPEC.replace("URL", server.url)))
        error = refused(capsys, ["run", path, "--set", "space.num_steps=[5]", *_tail(5)], 2)
        assert "space.num_steps: 5, but the running server has 3" in error
        error = refused(capsys, ["run", path, "--set", "space.tp_size=[2]"], 2)
        assert "space.tp_size: 2, but the running server has 1" in error
        assert server.seen.requests == []
    with TimedServer(TimedPlan()) as server:
        path = str(write_spec(tmp_path, SPEC.replace("URL", server.url)))
        assert "does not speculate" in refused(capsys, ["run", path], 2)
    assert not list(home.rglob("*.json"))


def _tail(steps: int) -> list[str]:
    return ["--set", "space.eagle_topk=[1]", "--set", f"space.num_draft_tokens=[{steps + 1}]"]


def test_a_server_that_is_not_there_is_the_environment(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_spec(tmp_path, SPEC.replace("URL", "http://127.0.0.1:1")))
    assert "Connection refused" in refused(capsys, ["run", path], 3)


def test_the_plan_counts_no_baseline_and_asks_nobody(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_spec(tmp_path, SPEC.replace("URL", "http://127.0.0.1:1")))
    assert main(["plan", path, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["effective"], plan["baselines"], plan["confirmations"]) == (1, 0, 0)
