"""What a plan is said to take: weights are loaded once a group and TP size where servers are switched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import MINIMAL, write_spec

from sweeps.plan_time import pace_of, plan_time
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


@pytest.mark.parametrize(("gpu", "switches"), [(True, False), (False, True)])
def test_auto_looks_at_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool, switches: bool) -> None:
    monkeypatch.setattr("sweeps.plan_time.has_gpu", lambda: gpu)
    spec = load_spec(write_spec(tmp_path))
    assert pace_of(spec).switches is switches
    assert not pace_of(spec.model_copy(update={"cluster": spec.cluster.model_copy(update={"address": "a:1"})})).switches
