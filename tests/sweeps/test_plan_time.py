"""What a plan is said to take: weights are loaded once a group and TP size where servers are switched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_files import MINIMAL, write_spec

from sweeps.budget import Budget
from sweeps.pace import Pace, pace_of
from sweeps.plan_budget import budget_cuts
from sweeps.plan_time import PlannedTime, plan_time
from sweeps.planning import SweepPlan, make_plan
from sweeps.spec import load_spec
from sweeps.study_extras import StudyExtras, extras_of

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
        {"layout": "0,3,7", "tp_size": 1, "eagle_topk": topk, "num_steps": 2, "flags": {}, "prompts": 12}
        for topk in (1, 2)
    ]
    # servers of their own: the traced one serves no trial, and nothing is there to check
    alone, traces = planned(
        tmp_path, *SURFACE, "space.num_draft_tokens=[3]", "space.layout=[[0, 3, 7]]", "engine.switching=off"
    )
    assert (alone.settings, alone.check, alone.traces, alone.loads, alone.switched) == (8, 0, 1, 12, 0)
    assert alone.seconds == 12 * 100 + 10
    assert len(traces) == 2


def within(folder: Path, *overrides: str) -> tuple[PlannedTime, list[tuple[str, float, float]]]:
    spec = load_spec(write_spec(folder), overrides)
    plan, pace = make_plan(spec), pace_of(spec, **PRICES)
    extras = extras_of(spec, plan, pace)
    cuts = budget_cuts(plan, pace, extras, spec.budget.limits)
    return plan_time(plan, pace, extras, spec.budget.limits), [(cut.limit, cut.within, cut.of) for cut in cuts]


GPUS = ["space.tp_size=[1, 2]", "engine.device=cuda", "space.num_steps=[1, 2, 3, 4]"]
"""8 servers, 2 baselines, 1 confirmation."""


def test_a_budget_of_trials_cuts_the_settings_and_nothing_else(tmp_path: Path) -> None:
    assert within(tmp_path, *GPUS)[1] == []
    time, cuts = within(tmp_path, *GPUS, "budget.trials=3")
    assert (time.baselines, time.settings, time.confirmations, time.loads, time.seconds) == (2, 3, 1, 6, 600)
    assert cuts == [("trials", 3, 8)]
    # repeats are trials; settings of the TP size of which fewer run at once are counted first
    time, cuts = within(tmp_path, *GPUS, "budget.repeats=2", "budget.trials=10", "cluster.gpus=2")
    assert (time.settings, time.trials, cuts) == (10, 12, [("trials", 10, 16)])
    assert time.seconds == 8 * 100 + 2 * 50 + 150 + 100
    # a suspect outside the space is no trial of the search
    suspect = "suspect={num_steps: 5, eagle_topk: 1, num_draft_tokens: 6, tp_size: 1}"
    time, cuts = within(tmp_path, *GPUS, "budget.trials=3", suspect)
    assert (time.settings, cuts) == (4, [("trials", 3, 8)])


def test_a_budget_of_launches_goes_to_the_first_baselines_first(tmp_path: Path) -> None:
    time, cuts = within(tmp_path, *GPUS, "budget.launches=5")
    assert (time.baselines, time.settings, time.confirmations, cuts) == (2, 3, 0, [("launches", 5, 11)])
    time, _ = within(tmp_path, *GPUS, "budget.launches=1")
    assert (time.baselines, time.settings, time.seconds) == (1, 0, 100)
    # later baselines come as they are due, the confirmation comes last
    for launches, counts in ((11, (6, 5, 0)), (7, (6, 1, 0)), (5, (4, 1, 0)), (15, (6, 8, 1)), (14, (6, 8, 0))):
        time, _ = within(tmp_path, *GPUS, f"budget.launches={launches}", "budget.baselines=3")
        assert (time.baselines, time.settings, time.confirmations) == counts
    # both limits: the launches of what the trials leave
    time, cuts = within(tmp_path, *GPUS, "budget.launches=5", "budget.trials=4")
    assert (time.settings, cuts) == (3, [("trials", 4, 8), ("launches", 5, 7)])


def test_nothing_is_switched_after_the_last_launch(tmp_path: Path) -> None:
    """Four settings at each of two TP sizes: a baseline and a load each, the check, the confirmation."""
    switched = ["space.tp_size=[1, 2]", "engine.device=cpu", "space.num_steps=[1, 2, 3, 4]"]
    assert [within(tmp_path, *switched)[0].to_json()[name] for name in ("all", "settings", "switched")] == [6, 2, 6]
    for launches, loads, trials in ((3, 0, 0), (4, 1, 0), (5, 2, 3), (6, 2, 6)):
        time, _ = within(tmp_path, *switched, f"budget.launches={launches}")
        assert (time.loads, time.settings, time.switched) == (launches, loads, trials)
    time, cuts = within(tmp_path, *switched, "budget.trials=3")
    assert (time.settings, time.switched, cuts) == (2, 1, [("trials", 3, 8)])


def test_a_trace_that_has_no_launch_left_is_none(tmp_path: Path) -> None:
    surface = [*SURFACE, "space.num_draft_tokens=[3]", "space.layout=[[0, 3, 7]]"]
    time, _ = within(tmp_path, *surface, "budget.launches=2")
    assert (time.baselines, time.check, time.traces, time.traced, time.trials) == (1, 1, 0, 0, 1)
    time, _ = within(tmp_path, *surface, "budget.launches=3")
    assert (time.traces, time.traced, time.settings, time.switched) == (1, 2, 0, 0)
    time, _ = within(tmp_path, *surface, "budget.launches=5")
    assert (time.baselines, time.settings, time.switched) == (2, 1, 4)


def test_time_ends_at_the_wall_time(tmp_path: Path) -> None:
    time, cuts = within(tmp_path, *GPUS, "budget.wall_time_s=300")
    assert (time.seconds, time.loads, cuts) == (300, 11, [("wall_time_s", 300, 1100)])
    time, cuts = within(tmp_path, *GPUS, "budget.wall_time_s=1100")
    assert (time.seconds, cuts) == (1100, [])


LIMITS = st.none() | st.integers(1, 40)


@given(limits=st.tuples(LIMITS, LIMITS, st.none() | st.floats(1, 5000)), data=st.data())
@settings(max_examples=80, deadline=None)
def test_never_more_than_the_budget_nor_than_everything(
    study_plans: list[tuple[SweepPlan, Pace, StudyExtras]],
    limits: tuple[int | None, int | None, float | None],
    data: Any,
) -> None:
    plan, pace, extras = data.draw(st.sampled_from(study_plans))
    pace = replace(pace, slots=data.draw(st.sampled_from([None, 1, 2, 4, 8])))
    budget = Budget(trials=limits[0], launches=limits[1], wall_time_s=limits[2])
    whole, time = plan_time(plan, pace, extras), plan_time(plan, pace, extras, budget)
    names = ("baselines", "settings", "check", "traces", "confirmations", "switched", "traced", "trials", "loads")
    assert all(getattr(time, name) <= getattr(whole, name) for name in names)
    assert time.seconds <= whole.seconds + 1e-6
    if budget.launches is not None:
        assert time.loads <= budget.launches
    if budget.trials is not None:
        assert time.trials - time.baselines <= budget.trials + plan.suspect_trials
    if budget.wall_time_s is not None:
        assert time.seconds <= budget.wall_time_s
    if not budget_cuts(plan, pace, extras, budget):
        assert time == whole


@pytest.fixture(scope="module")
def study_plans(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[SweepPlan, Pace, StudyExtras]]:
    """Studies that launch, switch and follow traces; with repeats, later baselines and a suspect beside the space."""
    folder = tmp_path_factory.mktemp("plans")
    suspect = "suspect={num_steps: 5, eagle_topk: 1, num_draft_tokens: 6, tp_size: 4}"
    made = []
    for overrides in (GPUS, CPU, SURFACE, [*SURFACE, "engine.switching=off"]):
        for more in ([], ["budget.repeats=2", "budget.baselines=3", "budget.confirmations=2", suspect]):
            spec = load_spec(write_spec(folder), [*overrides, *more])
            plan, pace = make_plan(spec), pace_of(spec, **PRICES)
            made.append((plan, pace, extras_of(spec, plan, pace)))
    return made


def test_every_layout_is_traced_on_one_server(tmp_path: Path) -> None:
    time, traces = planned(tmp_path, *SURFACE, "space.num_draft_tokens=[3]", "space.layout=[[0, 3, 7], [1, 2, 30]]")
    assert [(row["layout"], row["eagle_topk"]) for row in traces] == [
        ("0,3,7", 1), ("0,3,7", 2), ("1,2,30", 1), ("1,2,30", 2),
    ]  # fmt: skip
    # the search comes back after the second baselines
    assert (time.traces, time.settings, time.baselines, time.loads) == (1, 2, 6, 11)


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
    monkeypatch.setattr("sweeps.pace.has_gpu", lambda: gpu)
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
