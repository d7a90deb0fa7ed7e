"""What a plan is said to take: weights are loaded once a group and TP size where servers are switched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import MINIMAL, write_spec

from sweeps.plan_time import PlannedTime, extras_of, pace_of, plan_time
from sweeps.planning import make_plan
from sweeps.spec import load_spec

# 2 TP sizes x 2 triples, a baseline each, one confirmation
CPU = ["space.tp_size=[1, 2]", "engine.device=cpu"]


def loads_and_seconds(folder: Path, *overrides: str, text: str = MINIMAL, **prices: Any) -> tuple[int, float]:
    spec = load_spec(write_spec(folder, text), overrides)
    time = plan_time(make_plan(spec), pace_of(spec, **prices))
    return time.loads, time.seconds


def test_weights_are_loaded_once_a_tp_size_where_servers_are_switched(tmp_path: Path) -> None:
    prices = {"seconds_per_launch": 100.0, "seconds_per_switch": 10.0}
    # tp 1 and 2: a launch and a switch each; two baselines; the confirmation
    assert loads_and_seconds(tmp_path, *CPU, **prices) == (5, 2 * 110 + 200 + 100)
    assert loads_and_seconds(tmp_path, *CPU, "engine.switching=off", **prices) == (7, 700)
    assert loads_and_seconds(tmp_path, *CPU, "engine.device=cuda", **prices) == (7, 700)
    assert loads_and_seconds(tmp_path, *CPU, "engine.device=cuda", "engine.switching=on", **prices) == (5, 520)
    # a repeat is launched anew
    repeated = [*CPU, "budget.repeats=3", "budget.confirmations=0"]
    assert loads_and_seconds(tmp_path, *repeated, **prices) == (12, 2 * (5 * 100 + 10) + 200)


def test_groups_side_by_side_load_their_own(tmp_path: Path) -> None:
    prices = {"seconds_per_launch": 100.0, "seconds_per_switch": 10.0}
    # two slots hold two servers at tp 1, both launched, or one at tp 2
    assert loads_and_seconds(tmp_path, *CPU, "cluster.gpus=2", **prices) == (6, 100 + 110 + 50 + 100 + 100)
    assert loads_and_seconds(tmp_path, *CPU, "cluster.gpus=2", "cluster.max_parallel=1", **prices) == (5, 520)


SURFACE = [*CPU, "search.sampler=surface", "space.num_steps=[1, 2]", "space.eagle_topk=[1, 2]", "workload.prompts=12"]
PRICES = {"seconds_per_launch": 100.0, "seconds_per_switch": 10.0}


def planned(folder: Path, *overrides: str) -> tuple[PlannedTime, list[dict[str, Any]]]:
    spec = load_spec(write_spec(folder), overrides)
    plan, pace = make_plan(spec), pace_of(spec, **PRICES)
    extras = extras_of(spec, plan, pace)
    return plan_time(plan, pace, extras), extras.to_json()


def test_a_surface_study_counts_its_check_and_its_traces(tmp_path: Path) -> None:
    """At each of two TP sizes the chains (1,1,2) and (2,1,3) and the trees (1,2,3) and (2,2,3): eight servers."""
    time, traces = planned(tmp_path, *SURFACE, "space.num_draft_tokens=[3]", "space.layout=[[0, 3, 7]]")
    # a load each for two baselines, the traced server that goes on at tp 1, tp 2, the check, the confirmation
    assert time.to_json() == {
        "baselines": 2, "settings": 1, "check": 1, "traces": 1, "confirmations": 1, "all": 6,
        "switched": 7, "seconds": 6 * 100 + 7 * 10 + 10,
    }  # fmt: skip
    assert traces == [
        {"layout": "0,3,7", "tp_size": 1, "eagle_topk": topk, "num_steps": 2, "prompts": 12} for topk in (1, 2)
    ]
    # servers of their own: the traced one serves no trial, and nothing is there to check
    alone, traces = planned(
        tmp_path, *SURFACE, "space.num_draft_tokens=[3]", "space.layout=[[0, 3, 7]]", "engine.switching=off"
    )
    assert (alone.settings, alone.check, alone.traces, alone.loads, alone.switched) == (8, 0, 1, 12, 0)
    assert alone.seconds == 12 * 100 + 10
    assert len(traces) == 2


def test_every_layout_is_traced_on_one_server(tmp_path: Path) -> None:
    time, traces = planned(tmp_path, *SURFACE, "space.num_draft_tokens=[3]", "space.layout=[[0, 3, 7], [1, 2, 30]]")
    assert [(row["layout"], row["eagle_topk"]) for row in traces] == [
        ("0,3,7", 1), ("0,3,7", 2), ("1,2,30", 1), ("1,2,30", 2),
    ]  # fmt: skip
    assert (time.traces, time.settings, time.baselines, time.loads) == (1, 1, 6, 10)


def test_only_a_search_that_follows_a_surface_traces(tmp_path: Path) -> None:
    time, traces = planned(tmp_path, *CPU)
    assert (time.traces, time.check, traces) == (0, 1, [])
    auto, traces = planned(tmp_path, *CPU, "search.sampler=auto")
    assert (auto.traces, len(traces)) == (1, 1)
    assert planned(tmp_path, *CPU, "search.sampler=auto", "workload.temperature=0.5")[1] == []
    # one server at the smallest TP size: nothing to switch between
    one, _ = planned(tmp_path, *CPU, "space.num_steps=[1]", "space.eagle_topk=[1]", "space.num_draft_tokens=[2]")
    assert one.check == 0


@pytest.mark.parametrize(("gpu", "switches"), [(True, False), (False, True)])
def test_auto_looks_at_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool, switches: bool) -> None:
    monkeypatch.setattr("sweeps.plan_time.has_gpu", lambda: gpu)
    for name in ("RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    spec = load_spec(write_spec(tmp_path))
    assert pace_of(spec).switches is switches
    assert not pace_of(spec.model_copy(update={"cluster": spec.cluster.model_copy(update={"address": "a:1"})})).switches
    # a cluster whose GPUs nobody has counted; a device that the spec names needs no look
    for name in ("RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv(name, "10.0.0.1:6379")
            assert not pace_of(spec).switches
            assert pace_of(load_spec(tmp_path / "case.yaml", ["engine.device=cpu"])).switches
            assert pace_of(load_spec(tmp_path / "case.yaml", ["engine.switching=on"])).switches
